"""`version=`: a stash is attached by the name of its rows, which are then not read."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import run_python

ARGUMENTS: dict[str, Any] = {"columns": ["y"], "entity": "s", "time": "t"}
FRAME = pl.DataFrame({"s": ["b", "a", "b"], "t": [2, 1, 1], "y": [0.5, 1.5, 2.5]})

# loads a query, a stream, and a frame with a static query; in the second process all of them fail when they are read
PROGRAM = """
import sys, polars as pl, pyarrow as pa, tensorstash as ts

kept, where, fails = sys.argv[1:]
schema = pa.schema({"s": pa.string(), "t": pa.int64(), "y": pa.float64()})
frame = pl.DataFrame({"s": ["b", "a", "b"], "t": [2, 1, 1], "y": [0.5, 1.5, 2.5]})

def rows(frame):
    if fails == "fails":
        raise OSError("the rows were read")
    return frame

def batches():
    yield from rows(frame.to_arrow().cast(schema)).to_batches()

def load(kind, version):
    sources = {
        "query": frame.lazy().map_batches(rows, projection_pushdown=False),
        "stream": pa.RecordBatchReader.from_batches(schema, batches()),
        "static": frame,
    }
    table = pl.LazyFrame({"s": ["a", "b"], "w": [1, 2]}).map_batches(rows, projection_pushdown=False)
    static = table if kind == "static" else None
    return ts.load(sources[kind], ["y"], entity="s", time="t", static=static, version=version, **{kept: where + kind})

def refused(kind, version):
    try:
        load(kind, version)
    except (ts.errors.SourceError, ts.errors.SegmentError) as error:
        return "the rows were read" in str(error) or "holds another stash" in str(error)

for kind in ("query", "stream", "static"):
    stash = load(kind, "monday")
    values = {name: stash["y"][a:b].tolist() for name, a, b in zip(stash.entities, stash.offsets, stash.offsets[1:])}
    assert values == {"a": [1.5], "b": [2.5, 0.5]}
    print(stash.path)
    if fails == "fails":  # the rows of another version, or of none, are read
        assert refused(kind, "tuesday")
        assert refused(kind, None)
"""


@pytest.mark.parametrize("kept", ["share", "file"])
def test_a_second_process_attaches_without_reading(kept: str, shm: Path, tmp_path: Path) -> None:
    where = "rows-" if kept == "share" else f"{tmp_path}/"
    first = run_python(PROGRAM, kept, where, "works")
    assert len(set(first.split())) == 3
    assert run_python(PROGRAM, kept, where, "fails") == first


@pytest.mark.parametrize("source", [FRAME, FRAME.to_dict(as_series=False), FRAME.to_arrow()], ids=["frame", "dict", ""])
def test_rows_in_memory_may_have_a_key(source: Any, shm: Path) -> None:
    stash = ts.load(source, **ARGUMENTS, share="rows", version="monday")
    other = FRAME.with_columns(pl.col("y") * 2)  # against the promise that equal versions mean equal rows
    again = ts.load(other, **ARGUMENTS, share="rows", version="monday")
    assert again.path == stash.path
    assert torch.equal(again["y"], stash["y"])


def test_what_makes_another_stash(shm: Path) -> None:
    """Another version, none, and every argument that changes values."""
    source = pl.LazyFrame(FRAME)
    calls: list[dict[str, Any]] = [
        {"version": "monday"},
        {"version": "tuesday"},
        {"version": None},
        {"version": "monday", "dtype": torch.float32},
        {"version": "monday", "columns": {"y": pl.col("y") * 2}},
        {"version": "monday", "filter": [("t", ">", 1)]},
        {"version": "monday", "static": {"w": "s"}},
        {"version": "monday", "static": pl.DataFrame({"s": ["a", "b"], "w": [1, 2]})},
        {"version": "monday", "shard": (0, 2)},
    ]
    for _ in range(2):
        paths = [ts.load(source, **ARGUMENTS | call, share="rows").path for call in calls]
        assert len(set(paths)) == len(calls)
    assert ts.shared.list().height == len(calls)


def test_another_key_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    relation = duckdb.sql("select 1 as y")
    ts.load(relation, file=path, version="monday")
    for version in ("tuesday", None):
        with pytest.raises(ts.errors.SegmentError, match="holds another stash"):
            ts.load(relation, file=path, version=version)
    ts.load(duckdb.sql("select 2 as y"), file=path, version="tuesday", overwrite=True)
    assert ts.open(path)["y"].tolist() == [2]


def test_files_keep_their_stamps_beside_a_static_table_with_a_key(tmp_path: Path) -> None:
    path, target = tmp_path / "x.parquet", tmp_path / "x.safetensors"
    table = pl.LazyFrame({"s": ["a", "b"], "w": [1, 2]})
    FRAME.write_parquet(path)
    ts.load(path, **ARGUMENTS, static=table, file=target, version="monday")
    ts.load(path, **ARGUMENTS, static=table, file=target, version="monday")
    FRAME.with_columns(pl.col("y") * 2).write_parquet(path)
    with pytest.raises(ts.errors.SegmentError, match="holds another stash"):
        ts.load(path, **ARGUMENTS, static=table, file=target, version="monday")


def test_keys_that_are_refused(tmp_path: Path, shm: Path) -> None:
    FRAME.write_parquet(tmp_path / "x.parquet")
    data = {"y": np.zeros(3)}
    with pytest.raises(ValueError, match=r"needs share= or file="):
        ts.load(data, version="monday")
    with pytest.raises(ValueError, match=r"needs share= or file="):
        ts.load(data, version="monday", share=False)
    with pytest.raises(TypeError, match="got ''"):
        ts.load(data, version="", share="rows")
    with pytest.raises(TypeError, match="got 7"):
        ts.load(data, version=7, share="rows")  # type: ignore[arg-type]
    for source in (tmp_path / "x.parquet", [tmp_path / "x.parquet"]):
        with pytest.raises(ValueError, match="files are known by their sizes and times"):
            ts.load(source, version="monday", share="rows")
    reader = pa.table(data).to_reader()
    assert len(ts.load(reader, share="rows", version="monday")["y"]) == 3


def test_equal_texts_have_one_key_however_polars_holds_them(shm: Path) -> None:
    """Rows of equal texts share their memory, or each has its own."""
    names = ["a longer name of a series", "short"]
    shared = pl.Series("e", names).gather(np.repeat(np.arange(2), 9))
    own = pl.Series("e", np.repeat(names, 9).tolist())
    paths = []
    for texts in (shared, own, pl.concat([own[:4], own[4:]], rechunk=False)):
        frame = pl.DataFrame({"e": texts, "t": [*range(9)] * 2, "y": 0.5})
        paths.append(ts.load(frame, ["y"], entity="e", time="t", share="texts").path)
    assert len({*paths}) == 1
    del shm
