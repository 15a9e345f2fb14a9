"""Which versions are compared: the earlier commit, and this checkout with its kernel and without."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tensorstash
from tests.differential.compare import Cases, Version, differences, report, results, unexpected
from tests.differential.wanted import WANTED, Wanted

MANY = 100  # cases, most of which the earlier commit must have
CHECKOUT = Path(tensorstash.__file__).parents[1]


def compare(earlier: Path, cases: Cases, wanted: Sequence[Wanted] = WANTED) -> str:
    """What differs between the earlier commit, installed in a folder, and this checkout; nothing: an empty text."""
    versions = [
        Version("earlier", earlier, "earlier"),
        Version("here", CHECKOUT, "here"),
        Version("here without the kernel", CHECKOUT, "here", kernel=False),
    ]
    wanted = wanted if cases.seed == 0 and cases.count > 1 and cases.kind is None else ()
    cases = replace(cases, also=tuple(one.case for one in wanted))
    base, *others = results(cases, versions)
    found = [
        difference
        for version, lines in zip(versions[1:], others)
        for difference in differences((versions[0], version), base, lines)
    ]
    here, bare = others
    absent = [number for number, line in enumerate(base) if line.get("absent")]
    if (
        cases.count >= MANY and cases.kind is None
    ):  # else a word that was renamed without a line would end the comparison
        assert len(absent) < len(base) / 4, f"{len(absent)} of {len(base)} cases use what the earlier commit lacks"
    alone = [[lines[number] for number in absent] for lines in (here, bare)]
    found += differences((versions[1], versions[2]), *alone)
    return report(cases.seed, versions, *unexpected(found, wanted))
