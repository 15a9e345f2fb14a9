"""Attaching costs the same whatever the size: counted in bytes read and pages mapped, not in time."""

from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts
from tests.oracle_load import run_python

PROGRAM = """
import os, sys
import tensorstash as ts

read = {"pread": 0, "calls": 0}

def counted(fd, count, offset, real=os.pread):
    found = real(fd, count, offset)
    read["pread"] += len(found)
    read["calls"] += 1
    return found

os.pread = counted
how, what, path = sys.argv[1:]
opening = {"attach": ts.attach, "open": ts.open, "load": lambda path: ts.load(path, ["y"], share="cost")}
stash = opening[how](what)
columns = {name: tensor.shape for name, tensor in stash.items()}
with open("/proc/self/smaps") as file:
    lines = file.read().splitlines()
at = next(k for k, line in enumerate(lines) if line.endswith(path))
resident = next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:"))
print(stash.rows, len(columns), read["calls"], read["pread"], resident)
"""


@pytest.mark.parametrize("how", ["attach", "open", "load"])
def test_attaching_reads_the_header_and_no_data(how: str, shm: Path, tmp_path: Path) -> None:
    found = []
    for rows in (1_000, 4_000_000):
        source = tmp_path / "cost.parquet"
        ts.load({"y": np.zeros(rows)}).to_polars().write_parquet(source)
        stash = ts.load(source, ["y"], share="cost")
        assert stash.path is not None
        path = Path(stash.path)
        begin = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        if how == "open":
            path = tmp_path / "saved"
            stash.save(path)
        what = {"attach": "cost", "open": str(path), "load": str(source)}[how]
        counted = [int(count) for count in run_python(PROGRAM, how, what, path).split()]
        # the length of the header and the header itself; no page of the mapping is touched
        assert counted == [rows, 1, 2, begin, 0]
        found.append(counted[1:])
        ts.shared.remove("cost")
    assert found[0] == found[1]
