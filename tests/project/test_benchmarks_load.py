"""The benchmarks of loads and of files larger than memory run, and compare what they have read."""

import re
from pathlib import Path

import pytest

from tests import processes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *arguments: str) -> str:
    done = processes.run(BENCHMARKS / script, "--quick", *arguments, warn="default", nested=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("only", "rows"),
    [
        ("files", ["ts.load", "read_table + copy", "polars"]),
        ("texts", ["codes", "read_table + encode", "ts.hashed"]),
        ("csv", ["ts.load, CSV", "csv.read_csv", "csv.read_csv + copy"]),
    ],
)
def test_loads_are_compared(only: str, rows: list[str]) -> None:
    found = re.findall(r"^    (\S.*?) +\d+\.\d\d +\d+\.\d\d s", run("bench_load.py", "--only", only), re.M)
    assert found == rows


def test_windows_from_the_disk_are_compared() -> None:
    found = re.findall(r"^    (\S.*?) +\d+\.\d\d +\d+\.\d{3} ms", run("bench_disk.py"), re.M)
    assert found.count("ts.open") == found.count("ts.open, not ahead") == found.count("NumPy memory map") == 2
