"""What `tensorstash bench` prints of the weather file, which the page on the command line shows.

python benchmarks/bench_cli.py    # about half a minute
"""

import re
from pathlib import Path

import record
from click.testing import CliRunner

from tensorstash.cli.commands import commands

DATA = Path(__file__).parents[1] / "examples" / "data" / "nyc_weather.parquet"
OPTIONS = "--columns temp --entity origin --time time_hour --history 24 --horizon 6"
BATCH = 256


def main() -> None:
    options = record.arguments(__doc__).parse_args()
    seconds = ["--seconds", "0.1"] if options.quick else []
    done = CliRunner().invoke(commands, ["bench", str(DATA), *OPTIONS.split(), *seconds], catch_exceptions=False)
    printed = done.stdout[done.stdout.index("\n\n") :].strip("\n").splitlines()
    found = re.findall(r"^(\S.*?) {2,}\d\S+ s +([\d,]+) ", "\n".join(printed), re.MULTILINE)
    speeds = {name: [BATCH / float(speed.replace(",", ""))] for name, speed in found}
    row = {"section": "The command line", "case": f"{BATCH} x 30", "printed": printed, "seconds": speeds}
    print(*printed, sep="\n")
    print(f"Saved in {record.save('bench_cli', [row], quick=options.quick)}")


if __name__ == "__main__":
    main()
