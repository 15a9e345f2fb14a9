"""Random cases, one line of JSON each, run with whichever version of the library this process imports.

    python -m tests.differential.script --seed 0 --first 0 --count 100
    python -m tests.differential.script --seed 0 --first 17 --count 1 --detail

A case is a pure function of its seed and its number. The first line says which library has run; the script asks the
inside, `native/library.py`, whether the kernel was loaded.
"""

import argparse
import faulthandler
import json
import sys
import warnings
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from torch.utils import backend_registration

import tensorstash
from tensorstash.native import library as native
from tests import python_device
from tests.differential import kinds, loads, refusals, shards, sources, transforms
from tests.differential.record import Record, is_own
from tests.differential.words import NotThereError

KINDS: dict[str, tuple[kinds.Kind, int]] = {  # and how often they are drawn
    "load": (loads.load_case, 12),
    "sources": (sources.sources_case, 12),
    "windows": (kinds.windows_case, 16),
    "points": (kinds.points_case, 12),
    "loader": (kinds.loader_case, 24),
    "lanes": (kinds.lanes_case, 3),
    "everywhere": (kinds.everywhere_case, 4),
    "sampler": (kinds.sampler_case, 8),
    "mix": (kinds.mix_case, 12),
    "transforms": (transforms.transforms_case, 12),
    "shards": (shards.shards_case, 10),
    "torch": (kinds.torch_case, 4),
    "large": (kinds.large_case, 3),
    "refusals": (refusals.refusals_case, 6),
    "points refused": (refusals.points_refused_case, 2),
}
HANGING = 300  # seconds of one case


def draw(seed: int, number: int, kind: str | None = None) -> tuple[str, Random]:
    """The kind of a case, unless it is given, and what the rest of the case is drawn from."""
    rng = Random(f"{seed}/{number}")
    drawn = rng.choices([*KINDS], [weight for _, weight in KINDS.values()])[0]
    return kind or drawn, rng


def run(seed: int, number: int, *, kind: str | None = None, detail: bool = False) -> dict[str, Any]:
    """One case: what it has, and the digest of each of its parts."""
    kind, rng = draw(seed, number, kind)
    record = Record(detail=detail)
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            KINDS[kind][0](record, rng, Path(folder))
            error = None
        except NotThereError:
            return {"case": number, "kind": kind, "about": record.about, "parts": [], "absent": True}
        except Exception as raised:
            if is_own(raised):
                raise
            error = raised
        if error is not None:
            record.refused("case", error)
        record.warned([warning.category for warning in caught])
    found: dict[str, Any] = {"case": number, "kind": kind, "about": record.about, "parts": record.parts}
    return found | ({"texts": record.texts} if detail else {})


def _device() -> object:
    """Make torch know a device that is written in Python, as long as what is returned lives."""
    known = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
    return python_device.register() if known else None


def main() -> None:
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--also", type=int, nargs="*", default=[])
    parser.add_argument("--kind", choices=KINDS, help="of all cases")
    parser.add_argument("--detail", action="store_true")
    given = parser.parse_args()
    device = _device()
    tell = sys.stdout.write
    tell(json.dumps({"library": tensorstash.__file__, "kernel": native.LIBRARY is not None}) + "\n")
    for number in sorted({*range(given.first, given.first + given.count), *given.also}):
        faulthandler.dump_traceback_later(HANGING, exit=True)
        tell(json.dumps(run(given.seed, number, kind=given.kind, detail=given.detail)) + "\n")
        sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()
    del device


if __name__ == "__main__":
    main()
