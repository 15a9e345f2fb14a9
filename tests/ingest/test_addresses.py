"""Addresses of memory, which batch systems limit: how many a load takes, and what it says without them."""

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tensorstash as ts
from tests.oracle_load import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="addresses are counted in /proc")

COUNT = """
import sys
import numpy as np
import tensorstash as ts

def addresses(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(what))

def load(rows, **where):
    data = {"t": np.arange(rows)[:: int(sys.argv[1])], **{f"c{k}": np.ones(rows, np.float32) for k in range(60)}}
    return ts.load(data, [f"c{k}" for k in range(60)], time="t", **where)

for rows in (9, 1 << 17):  # the threads of a load have begun
    load(rows)
before = addresses("VmSize")
path = {} if sys.argv[2] == "memory" else {"file": sys.argv[2]}
stash = load(1 << 19, **path)
print(stash.segment.size, addresses("VmPeak") - before)
"""


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_load_maps_its_file_once_whatever_the_order_of_rows(step: int, where: str, tmp_path: Path) -> None:
    """A mapping of the whole file for each of 60 columns would take 60 times as many addresses as the data."""
    path = where if where == "memory" else tmp_path / "stash"
    size, grown = map(int, run_python(COUNT, step, path).split())
    assert size > 60 * (1 << 21)
    assert grown < 4 * size, "the data twice, the source, and what threads take"


REFUSED = """
import resource, sys
import tensorstash as ts

def load(source):
    return ts.load(source, [f"c{k}" for k in range(8)], entity="e", time="t", progress=False)

whole, saved, large = sys.argv[1:]
load(whole)
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmSize"))
_, hard = resource.getrlimit(resource.RLIMIT_AS)
for how, what in (("load", large), ("open", saved)):
    for more in (16, 24, 32, 48, 64, 96, 128, 2048):
        resource.setrlimit(resource.RLIMIT_AS, (used + (more << 20), hard))
        try:
            rows = {"load": load, "open": ts.open}[how](what).rows
        except ts.errors.NoMemoryError as error:
            print(how, more, "refused", "ulimit -v" in str(error) or "narrower dtype" in str(error))
        else:
            print(how, more, "right", rows == 1_000_000)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
"""


def test_whatever_the_system_refuses_is_said_with_the_remedy(tmp_path: Path) -> None:
    """Memory of numpy and pyarrow, mappings, files in memory and threads."""
    paths = [tmp_path / name for name in ("small.parquet", "saved", "large.parquet")]
    for rows, path in ((9, paths[0]), (1_000_000, paths[2])):
        values = {f"c{k}": np.random.default_rng(k).random(rows, np.float32) for k in range(8)}
        keys = {"t": np.random.default_rng(9).permutation(rows), "e": pl.Series(["a"] * rows)}
        pl.DataFrame({**keys, **values}).write_parquet(path)
    ts.load(paths[2], entity="e", time="t").save(paths[1])
    lines = [line.split() for line in run_python(REFUSED, *paths).splitlines()]
    assert len(lines) == 16
    assert {said for *_, said in lines} == {"True"}
    for how in ("load", "open"):
        results = [result for of, _, result, _ in lines if of == how]
        assert (results[0], results[-1]) == ("refused", "right")
