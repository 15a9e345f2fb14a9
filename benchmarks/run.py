"""All figures of the README and of the page on benchmarks in one command, then the pictures and tables.

    python benchmarks/run.py            # about half an hour on two cores, which should have nothing else to do
    python benchmarks/run.py --only compare plots table    # some of it, here the comparison with other libraries

Results and pictures are written to a folder of `benchmarks/results` for this kind of machine. What
`benchmarks/peers.txt` names is compared with as far as it is installed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = ("train", "compare", "bench_batch", "bench_mix", "bench_share", "plots", "table")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="some of them")
    options = parser.parse_args()
    for name in options.only:
        print(f"\n{name}", flush=True)
        began = time.perf_counter()
        script = Path(__file__).with_name(f"{name}.py")
        subprocess.run([sys.executable, str(script)], check=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
