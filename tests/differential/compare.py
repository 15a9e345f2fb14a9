"""Runs the script with two versions of the library at once, and says where they differ."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from tests.differential.base import ROOT
from tests.differential.orders import ON_DEVICE
from tests.differential.wanted import Wanted
from tests.differential.words import Side

SHOWN = 5  # mismatches in a report
SECONDS = 1800  # a run that takes longer hangs

Line = dict[str, Any]  # of one case


@dataclass(frozen=True)
class Version:
    """A library: the folder that it is imported from, with the kernel or without."""

    name: str
    folder: Path
    side: Side
    kernel: bool = True
    more: Mapping[str, str] = field(default_factory=dict)  # environment


@dataclass(frozen=True)
class Cases:
    """Cases to run: a range of numbers, and a few more."""

    seed: int
    first: int
    count: int
    also: tuple[int, ...] = ()
    kind: str | None = None  # of all of them

    @property
    def arguments(self) -> list[str]:
        """Of the script."""
        named = {"seed": self.seed, "first": self.first, "count": self.count}
        also = ["--also", *map(str, self.also)] if self.also else []
        kind = [f"--kind={self.kind}"] if self.kind else []
        return [*(f"--{name}={value}" for name, value in named.items()), *also, *kind]


@dataclass(frozen=True)
class Difference:
    """A case that two versions do not agree about, and the first part in which they differ."""

    case: int
    kind: str
    about: Sequence[str]
    label: str
    versions: tuple[str, str]


def results(cases: Cases, versions: Sequence[Version], *, detail: bool = False) -> list[list[Line]]:
    """The lines of each version, which run at the same time."""
    arguments = [*cases.arguments, *(["--detail"] if detail else [])]
    with ExitStack() as stack:
        outs = [stack.enter_context(TemporaryFile("w+")) for _ in versions]
        folder = stack.enter_context(TemporaryDirectory(dir=_fast()))
        running = [_start(version, arguments, out, folder) for version, out in zip(versions, outs)]
        for process in running:
            stack.callback(process.kill)
        for process in running:
            process.wait(SECONDS)
        return [_lines(version, process, out) for version, process, out in zip(versions, running, outs)]


def _fast() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _start(version: Version, arguments: Sequence[str], out: IO[str], folder: str) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(version.folder), str(ROOT)]),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": folder,
        "TENSORSTASH_DIR": os.path.join(folder, "shared"),
        "TENSORSTASH_NATIVE": "1" if version.kernel else "0",
        "DIFFERENTIAL_SIDE": version.side,
        **version.more,
    }
    command = [sys.executable, "-m", "tests.differential.script", *arguments]
    return subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, text=True, cwd=version.folder, env=environment
    )


def _lines(version: Version, process: "subprocess.Popen[str]", out: IO[str]) -> list[Line]:
    """What was printed, once it is sure that the right library has printed it."""
    out.seek(0)
    texts = out.read().splitlines()
    lines = [json.loads(text) for text in texts if text.startswith("{")]
    rest = "\n".join(text for text in texts if not text.startswith("{"))
    assert process.returncode == 0, f"{version.name} ended with {process.returncode} after {len(lines)} lines:\n{rest}"
    head, *cases = lines
    wanted = version.folder / "tensorstash" / "__init__.py"
    assert Path(head["library"]).samefile(wanted), f"{version.name} has imported {head['library']} for {wanted}"
    assert head["kernel"] is version.kernel, f"{version.name} has {'a' if head['kernel'] else 'no'} kernel"
    return cases


def differences(pair: tuple[Version, Version], one: Sequence[Line], other: Sequence[Line]) -> Iterator[Difference]:
    """Where two versions differ, case by case."""
    assert [line["case"] for line in one] == [line["case"] for line in other]
    for left, right in zip(one, other):
        if left.get("absent"):
            continue
        if ON_DEVICE in left["about"] and not (pair[0].kernel and pair[1].kernel):
            continue  # a device written in Python loses views in other dtypes, of which there are more without it
        label = _first(left, right)
        if label is not None:
            names = pair[0].name, pair[1].name
            yield Difference(left["case"], left["kind"], left["about"], label, names)


def _first(left: Line, right: Line) -> str | None:
    """The label of the first part that differs."""
    if left["about"] != right["about"]:
        return "what the case has"
    for mine, yours in zip([*left["parts"], None], [*right["parts"], None]):
        if mine != yours:
            return str((mine or yours)[0])
    return None


def unexpected(found: Sequence[Difference], wanted: Sequence[Wanted]) -> tuple[list[Difference], list[Wanted]]:
    """The differences that nobody wanted, and what was wanted and shows no more."""
    odd, gone = [], [*wanted]
    for difference in found:
        right = [one for one in wanted if one.kind == difference.kind and one.shows(difference.about, difference.label)]
        gone = [one for one in gone if one not in right or one.case != difference.case]
        odd += [] if right else [difference]
    return odd, gone


def report(seed: int, versions: Sequence[Version], odd: Sequence[Difference], gone: Sequence[Wanted]) -> str:
    """What is wrong: the first mismatches with their values, and how to see each alone."""
    by_name = {version.name: version for version in versions}
    texts = [f"{len(odd)} cases differ: {dict(Counter(one.kind for one in odd))}"] if odd else []
    for one in odd[:SHOWN]:
        command = f"python -m tests.differential {one.case} --seed {seed} --kind '{one.kind}'"
        pair = [by_name[name] for name in one.versions]
        texts.append(
            f"case {one.case} ({one.kind}: {', '.join(one.about)}): {one.versions[0]!r} and {one.versions[1]!r} differ "
            f"first in {one.label!r}\n{shown(seed, one, pair)}\n  alone: {command}"
        )
    texts += [f"no case shows a wanted difference any more: {one.reason}. Take it off the list." for one in gone]
    return "\n\n".join(texts)


def shown(seed: int, one: Difference, pair: Sequence[Version]) -> str:
    """The first values in which two versions differ, from a run of the one case."""
    (left,), (right,) = results(Cases(seed, one.case, 1, kind=one.kind), pair, detail=True)
    lines = [[("has", line["about"]), *line["texts"], ("nothing more", [])] for line in (left, right)]
    for mine, yours in zip(*lines):
        if mine == yours:
            continue
        rows = [*zip([mine[0], *mine[1], ""], [yours[0], *yours[1], ""])]
        first = next((pair for pair in rows if pair[0] != pair[1]), rows[-1])
        return "\n".join(f"  {version.name}: {mine[0]}: {text}" for version, text in zip(pair, first))
    return "  alone, the case is the same on both sides this time: what threads do may show"
