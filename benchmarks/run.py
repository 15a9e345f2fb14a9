"""The figures of all pages in one command, then the tables and pictures, and the figures into the pages.

    python benchmarks/run.py                  # the parts of `BRIEF`: twelve minutes on two cores that do nothing else
    python benchmarks/run.py --only compare   # parts, singly: each replaces its results of this kind of machine
    python benchmarks/run.py --whole          # all libraries and feeds, and what other pages quote: about an hour
    python benchmarks/run.py --quick          # each part on small data, to see that it runs; nothing is written

Results and pictures are written to a folder of `benchmarks/results` for this kind of machine. It runs in the
environment of `benchmarks/compare.py`, with the other libraries; without a contestant of the README, nothing runs.
When all parts have run, tables, pictures and pages are made of all that is saved. The words of the pages stay: read
the sentences whose figures have changed.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

BRIEF = {  # the parts, and their arguments
    "compare": ["--brief"],
    "train": ["--brief", "--steps", "25"],
    "bench_batch": [],
    "bench_mix": [],
    "bench_share": [],
    "bench_cli": [],
}
OTHERS = ("bench_events", "bench_cluster", "bench_tables", "bench_pretrain", "bench_disk")
WRITERS = ("plots", "table", "quotes")
NEEDED = ("numba", "darts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*BRIEF, *OTHERS], help="some of the parts")
    parser.add_argument("--whole", action="store_true", help="every contestant, and the parts that other pages quote")
    parser.add_argument("--quick", action="store_true", help="small data; nothing is written")
    options = parser.parse_args()
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        parser.error(f"{' and '.join(missing)} must be installed here; see benchmarks/peers.txt.")
    for name in options.only or [*BRIEF, *(OTHERS if options.whole else ())]:
        arguments = [each for each in BRIEF.get(name, []) if each != "--brief" or not options.whole]
        run(name, *arguments, *(["--quick"] if options.quick else []))
    for name in () if options.quick else WRITERS:
        run(name)


def run(name: str, *arguments: str) -> None:
    """One script, whose failure ends the run: what was saved before it stays."""
    print(f"\n{' '.join([name, *arguments])}", flush=True)
    began = time.perf_counter()
    subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py")), *arguments], check=True)
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
