"""All figures of the README in one command: the comparisons one after the other, then the pictures and tables.

    python benchmarks/run.py            # about 40 minutes on two cores, which should have nothing else to do
    python benchmarks/run.py --only compare plots table    # some of it, here the comparison with other libraries
    python benchmarks/run.py --quick    # small, to see that it runs

Results and pictures are written to `benchmarks/results`, those of a quick run to `benchmarks/results/quick`. What
`benchmarks/peers.txt` names is compared with as far as it is installed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = ("train", "compare", "sweep", "formats", "pipeline", "plots", "table")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="some of them")
    options = parser.parse_args()
    for name in options.only:
        print(f"\n{name}", flush=True)
        began = time.perf_counter()
        script = Path(__file__).with_name(f"{name}.py")
        subprocess.run([sys.executable, str(script), *(["--quick"] if options.quick else [])], check=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
