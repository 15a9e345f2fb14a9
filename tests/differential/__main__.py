"""Compare single cases, or many, with the earlier commit.

python -m tests.differential 17               # case 17 of seed 0, with the values that differ
python -m tests.differential --cases 5000 --seed 7
python -m tests.differential --cases 3000 --kind sources
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.base import BASE, install
from tests.differential.compare import Cases
from tests.differential.runs import compare


def main() -> int:
    """Run what the command line asks for; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("case", type=int, nargs="?", help="the number of a single case")
    parser.add_argument("--cases", type=int, default=1000, help="how many, from 0 on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="of all cases, such as sources; otherwise it is drawn")
    parser.add_argument("--commit", default=BASE, help="what to compare with")
    given = parser.parse_args()
    first, count = (0, given.cases) if given.case is None else (given.case, 1)
    cases = Cases(given.seed, first, count, kind=given.kind)
    with TemporaryDirectory() as folder:
        text = compare(install(given.commit, Path(folder) / "earlier"), cases)
    sys.stdout.write(f"{text or 'no difference'}\n")
    return 1 if text else 0


if __name__ == "__main__":
    sys.exit(main())
