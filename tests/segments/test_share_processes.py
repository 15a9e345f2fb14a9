"""The same memory in other processes and other libraries: nothing is copied on the way."""

import os
import resource
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import safetensors
import torch
from hypothesis import given, settings

import tensorstash as ts
from tests import processes
from tests.cases_load import cases
from tests.oracle_load import Case, arranged, exact, run_python

# Processes

WORKERS = """
import multiprocessing, os, numpy as np, torch, tensorstash as ts

class Rows(torch.utils.data.Dataset):
    def __init__(self, stashes):
        self.stashes = stashes
    def __len__(self):
        return 8
    def __getitem__(self, k):
        return [seen(stash, slice(k * 1000, (k + 1) * 1000)) for stash in self.stashes]

def seen(stash, rows):
    total = sum(tensor[rows].sum().item() for tensor in stash.values())
    about = os.fstat(stash.segment.fd)
    return [total, about.st_ino, about.st_dev, stash.private_bytes(), stash["a"].is_shared()]

def work(rank, stashes, queue):
    queue.put([seen(stash, slice(None)) for stash in stashes])

if __name__ == "__main__":
    source = {name: np.arange(100_000, dtype=np.float64) for name in "abcd"}
    stashes = [ts.load(source), ts.load(source, share="across")]
    addresses = [stash["a"].data_ptr() for stash in stashes]
    multiprocessing.set_forkserver_preload(["torch", "tensorstash"])
    for method, workers in (("fork", 2), ("spawn", 1), ("forkserver", 2)):
        loader = torch.utils.data.DataLoader(
            Rows(stashes), batch_size=None, num_workers=workers, multiprocessing_context=method
        )
        for k, found in enumerate(loader):
            assert found == [seen(stash, slice(k * 1000, (k + 1) * 1000)) for stash in stashes], (method, found)
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(work, (stashes, queue), nprocs=2)
    for rank in range(2):
        assert queue.get() == [seen(stash, slice(None)) for stash in stashes]
    assert not any(stash["a"].is_shared() or stash.private_bytes() for stash in stashes)
    assert [stash["a"].data_ptr() for stash in stashes] == addresses
    print("one copy")
"""


def test_workers_take_stashes_without_a_copy(shm: Path, tmp_path: Path) -> None:
    """DataLoader under fork, spawn and forkserver, and torch's spawn: the same memory, and none besides it.

    A private and a shared stash: every process maps the same inode, and has written to none of its pages.
    """
    script = tmp_path / "workers.py"  # the workers import it by its name
    script.write_text(WORKERS)
    done = processes.run(script, warn="default", nested=True)
    assert (done.returncode, done.stdout) == (0, "one copy\n"), done.stderr


def test_eight_processes_hold_one_copy(shm: Path) -> None:
    """The sum of their proportional shares of the mapping is its size; each has read all of it."""
    program = """
import os, sys, tensorstash as ts, torch
torch.set_num_threads(1)

def share(path):
    with open("/proc/self/smaps") as file:
        lines = file.read().splitlines()
    at = next(k for k, line in enumerate(lines) if line.endswith(path))
    fields = dict(line.split(":", 1) for line in lines[at + 1 : at + 10])
    return int(fields["Pss"].split()[0]), int(fields["Rss"].split()[0])

ready, go, out, end = os.pipe(), os.pipe(), os.pipe(), os.pipe()
for _ in range(8):
    if not os.fork():
        stash = ts.attach("eight")
        total = sum(tensor.sum().item() for tensor in stash.values())
        os.write(ready[1], b".")
        os.read(go[0], 1)
        os.write(out[1], f"{total} {' '.join(map(str, share(stash.path)))}\\n".encode())
        os.read(end[0], 1)
        os._exit(0)
for _ in range(8):
    os.read(ready[0], 1)
os.write(go[1], b"." * 8)
lines = b""
while lines.count(b"\\n") < 8:
    lines += os.read(out[0], 1000)
os.write(end[1], b"." * 8)
for _ in range(8):
    os.wait()
print(lines.decode())
"""
    stash = ts.load({name: np.arange(2_000_000, dtype=np.float64) for name in "abcd"}, share="eight")
    size, total = os.path.getsize(str(stash.path)), 4.0 * sum(range(2_000_000))
    del stash
    lines = [line.split() for line in run_python(program).splitlines()]
    assert [float(line[0]) for line in lines] == [total] * 8
    assert min(int(line[2]) for line in lines) * 1024 > 0.98 * size
    assert sum(int(line[1]) for line in lines) * 1024 < 1.02 * size


# Other libraries


@settings(max_examples=60)
@given(case=cases("table"))
def test_an_arrow_table_has_what_the_rows_say(case: Case) -> None:
    """Value by value; and loaded again, all columns but bit patterns of text codes are as before."""
    table = case.load(pa.concat_tables(case.pieces())).to_arrow()
    table.validate(full=True)
    order = arranged(case).order
    names = [*(["entity_"] if case.entity else []), *(["time_"] if case.time else []), *case.columns]
    assert table.column_names == names
    for name in names:
        held = case.all[name]
        column = table[name]
        plain = column.combine_chunks()
        plain = plain.dictionary_decode() if pa.types.is_dictionary(plain.type) else plain
        if pa.types.is_temporal(plain.type):
            plain = plain.view(pa.int32() if plain.type.bit_width == 32 else pa.int64())
        assert exact(plain.to_pylist(), [held.stored[row] for row in order]), name
    again = ts.load(table, list(case.columns))
    for name in case.columns:
        assert again[name].dtype == case.columns[name].kind.dtype


def large() -> pa.Table:
    rows = 2_000_000
    pack = pa.array(np.arange(4 * rows, dtype=np.float32))
    return pa.table(
        {
            "e": np.repeat(np.arange(4), rows // 4),
            "t": np.arange(rows),
            "x": np.arange(rows, dtype=np.float64),
            "pack": pa.FixedSizeListArray.from_arrays(pack, 4),
            "s": pa.DictionaryArray.from_arrays(np.arange(rows, dtype=np.int32) % 3, ["a", "b", "c"]),
            "n": np.arange(rows, dtype=np.int32).astype(np.int16),
        }
    )


def load_large() -> ts.Stash:
    return ts.load(large(), ["x", "pack", "s", "n"], entity="e", time="t", share="large")


def test_an_arrow_table_is_the_memory_of_the_stash(shm: Path) -> None:
    stash = load_large()
    table = stash.to_arrow()
    for name in ("t", "x", "n"):
        expected = stash.time if name == "t" else stash[name]
        assert expected is not None
        assert table[name].chunk(0).buffers()[1].address == expected.data_ptr()
    assert table["pack"].chunk(0).values.buffers()[1].address == stash["pack"].data_ptr()
    assert table["s"].chunk(0).indices.buffers()[1].address == stash["s"].data_ptr()
    assert table.schema.field("pack").type == pa.list_(pa.float32(), 4)
    assert table["e"].chunk(0).dictionary.to_pylist() == [0, 1, 2, 3]


def test_a_polars_frame_is_the_memory_of_the_stash(shm: Path) -> None:
    stash = load_large()
    frame = stash.to_polars()
    for name in ("x", "n", "pack"):
        assert frame[name].to_numpy().ctypes.data == stash[name].data_ptr(), name
    assert stash.time is not None
    assert frame["t"].to_numpy().ctypes.data == stash.time.data_ptr()
    assert pl.DataFrame(frame).filter(pl.col("s") == "b")["x"][1] == 4.0
    assert stash.private_bytes() == 0


def test_duckdb_queries_the_memory_of_the_stash(shm: Path) -> None:
    """Of 112 MB no copy is made; what it takes for the query itself is less."""
    stash = load_large()
    table = stash.to_arrow()
    query = "select e, count(*), sum(x), max(n) from table where s = 'a' group by e order by e".replace("table", "rows")
    with duckdb.connect() as connection:
        connection.register("rows", table)
        connection.execute("set threads = 1")
        found = connection.execute(query).fetchall()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connection.execute("select sum(x), max(n), sum(pack[1]) from rows").fetchall()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    quarter = np.arange(2_000_000).reshape(4, -1)
    expected = []
    for k, rows in enumerate(quarter):
        chosen = rows[rows % 3 == 0]
        expected.append((k, len(chosen), float(chosen.sum()), int(chosen.astype(np.int16).max())))
    assert found == expected
    assert grown < 40 * 1024
    assert stash.private_bytes() == 0


def test_safetensors_reads_the_file_of_a_shared_stash(shm: Path) -> None:
    stash = load_large()
    with safetensors.safe_open(str(stash.path), framework="pt") as file:
        for name, tensor in stash.items():
            assert torch.equal(file.get_tensor(name), tensor)
    assert ts.load({"y": [1]}).path is None
