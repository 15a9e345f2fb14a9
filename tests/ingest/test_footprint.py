"""What a load takes and leaves behind: memory, descriptors, threads and its source, also when it is refused."""

import gc
import json
import resource
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests import processes
from tests.oracle_load import (
    descriptors,
    run_python,
    write_ipc,
    write_parquet,
)


def test_the_traceback_of_a_refused_load_ends_in_load_and_keeps_its_cause(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    for source, kind, cause in (
        ({"n": [1, None]}, ts.errors.DataError, False),
        (tmp_path / "broken.parquet", ts.errors.SourceError, True),
    ):
        for file in (None, tmp_path / "stash.safetensors"):
            with pytest.raises(kind, match=r"column 'n'|broken\.parquet") as caught:
                ts.load(source, file=file)
            assert [entry.name for entry in caught.traceback][1:] == ["checked", "load"] * 2  # `ts.load`, `Plan.load`
            assert (caught.value.__cause__ is not None) == cause


def test_too_much_is_refused_before_anything_is_allocated() -> None:
    """A limit on the size of files sees to it that a load which is not refused does not take all memory."""
    rows = 1_000_000
    members = ts.plan({"y": [0]}).free // rows // 8 + 10_000
    columns = {"x": ts.column(["y"] * members, dtype=torch.float64)}
    gc.collect()
    before = descriptors()
    message = (
        r"\AA stash must fit into free memory; the mapping needs [\d,]+ MB and [\d,]+ MB are free in RAM\. Load fewer "
        r"columns, or a narrower dtype; print\(ts\.plan\(\.\.\.\)\) shows what each costs\.\Z"
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(ts.errors.NoMemoryError, match=message):
            ts.load({"y": np.zeros(rows, np.int8)}, columns)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert issubclass(ts.errors.NoMemoryError, MemoryError)
    gc.collect()
    assert descriptors() == before


def test_a_private_stash_is_mapped_from_memory_without_a_name(tmp_path: Path) -> None:
    """What a load leaves behind is the columns, in pages of a file that has no name, and nothing of its own."""
    rows = 12_500_000
    pattern = np.arange(rows, dtype=np.float32) % 1000
    table = pa.table({"a": pattern, "b": pattern + 1, "unsorted": np.arange(rows, dtype=np.int32) ^ 1})
    path = write_parquet(tmp_path / "one.parquet", [table.slice(k, 1_000_000) for k in range(0, rows, 1_000_000)])
    program = """
import gc, json, os, sys
import pyarrow as pa
import tensorstash as ts

def resident():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem")}

def settle():
    gc.collect()
    pa.default_memory_pool().release_unused()

ts.load({"t": [2, 1], "a": [1.0, 2.0]}, ["a"], time="t")
settle()
before = resident()
stash = ts.load(sys.argv[1], ["a", "b"], time=sys.argv[2] or None)
settle()
total = float(stash["a"].sum()) + float(stash["b"].sum())
after = resident()
link = os.readlink(f"/proc/self/fd/{stash.segment.fd}")
size = os.fstat(stash.segment.fd).st_size
print(json.dumps([stash.nbytes, size, {k: after[k] - before[k] for k in after}, total, link]))
"""
    for time in ("", "unsorted"):
        nbytes, size, grown, total, link = json.loads(run_python(program, path, time))
        assert nbytes == rows * 8
        assert total == pytest.approx(float(pattern.sum(dtype=np.float64)) * 2 + rows, rel=1e-3)
        assert link == "/memfd:tensorstash (deleted)"
        assert size < nbytes * 1.02 + (rows * 8 if time else 0)
        assert grown["RssShmem"] > nbytes * 0.98
        assert grown["RssAnon"] < nbytes * 0.4


def test_descriptors_go_with_the_stash_and_its_tensors(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", [pa.table({"y": [1, 2], "s": ["a", "b"]})])
    write_ipc(tmp_path / "2.arrow", [pa.table({"y": [3, 4], "s": ["a", "c"]})], None)
    gc.collect()
    before = descriptors()
    stash = ts.load(tmp_path)
    tensor = stash["y"]
    assert descriptors() - before == Counter({"/memfd:tensorstash (deleted)": 2})  # its own, and the mapping's
    del stash
    assert tensor.tolist() == [1, 2, 3, 4]
    del tensor
    assert descriptors() == before


def test_descriptors_go_with_a_load_that_fails(tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", [pa.table({"y": [1, 2], "e": ["a", "a"], "t": [1, 2]})])
    write_parquet(tmp_path / "2.parquet", [pa.table({"y": [3, None], "e": ["a", None], "t": [3, 3]})])
    gc.collect()
    before = descriptors()
    wrong: list[dict[str, Any]] = [{}, {"entity": "e"}, {"time": "t"}]
    for options in wrong:
        with pytest.raises(ts.errors.DataError, match=r" null| in source rows "):
            ts.load(tmp_path, ["y"], **options)
        gc.collect()  # the traceback
        assert descriptors() == before


def test_no_thread_outlives_a_load(tmp_path: Path) -> None:
    """Neither one that went well nor one that failed in the first of many row groups."""
    good = write_parquet(tmp_path / "good.parquet", [pa.table({"y": [k]}) for k in range(50)])
    bad = write_parquet(tmp_path / "bad.parquet", [pa.table({"y": pa.array([None], pa.int64())}) for _ in range(50)])
    before = set(threading.enumerate())
    ts.load(good)
    assert set(threading.enumerate()) == before
    with pytest.raises(ts.errors.DataError, match=r"has 1 null in .*, row group 0\. "):
        ts.load(bad)
    assert set(threading.enumerate()) == before


def test_memory_that_cannot_be_allocated_is_an_error(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full machine."""
    program = """
import os, resource, tensorstash as ts, numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
before = os.listdir("/proc/self/fd")
try:
    ts.load({"y": np.zeros(1_000_000)})
except MemoryError as error:
    print(type(error).__name__, error)
assert os.listdir("/proc/self/fd") == before
"""
    message = (
        "NoMemoryError A stash needs room for all its bytes; 8 MB cannot be written: File too large. Make room, or "
        "load fewer columns or a narrower dtype."
    )
    assert run_python(program) == message


def test_a_source_is_not_changed_by_loading_or_by_writes_to_the_stash() -> None:
    arrays = {"t": np.array([3, 1, 2]), "y": np.array([1.0, 2.0, 3.0])}
    kept = {name: array.copy() for name, array in arrays.items()}
    for columns in (["y"], ["y", "t"]):
        stash = ts.load(arrays, columns, time="t")
        for tensor in stash.values():
            tensor.fill_(-1)
        assert all(np.array_equal(arrays[name], kept[name]) for name in arrays)


def test_a_load_leaves_no_thread_behind() -> None:
    """Not even the one with which tqdm watches its bars; a fork is safest in a process with one thread."""
    program = """
import threading, tensorstash as ts
for progress in (None, False, True):
    ts.load({"a": [1.0]}, progress=progress)
print([thread.name for thread in threading.enumerate()])
"""
    done = processes.run(program, warn="default")
    assert done.stdout == "['MainThread']\n"
