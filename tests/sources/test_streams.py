"""Whatever hands out Arrow batches: the same rows as from a table of them, once, in little memory, from any library.

It reaches inside `sources/streams.py` and `ingest/segment_key.py` for pieces and labels.
"""

import errno
import gc
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.io.plugins import register_io_source

import tensorstash as ts
from tests.oracle_load import descriptors, like
from tests.processes import run

ROWS = 1000
TABLE = pa.table(
    {
        "s": pa.array([f"s{k % 3}" for k in range(ROWS)]),
        "t": pa.array(np.arange(ROWS) // 3),
        "y": pa.array([None if k % 7 == 0 else k / 4 for k in range(ROWS)]),
        "c": pa.array([None if k % 11 == 0 else "xyz"[k % 3] for k in range(ROWS)]),
        "day": pa.array([date(2024, 1, 1 + k % 28) for k in range(ROWS)]),
        "unused": pa.array([[k] for k in range(ROWS)]),  # of no type that a stash holds
    }
)
ARGUMENTS: dict[str, Any] = {"columns": {"value": "y", "c": "c", "day": "day"}, "entity": "s", "time": "t"}


def reader(table: pa.Table = TABLE) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=77))


class Producer:
    """The protocol and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def ibis_table(_: Path) -> Any:
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.polars.connect({"rows": pl.DataFrame(TABLE.drop_columns("unused"))}).table("rows")


def datafusion_frame(_: Path) -> Any:
    datafusion = pytest.importorskip("datafusion", reason="datafusion is not installed")
    return datafusion.SessionContext().from_arrow(TABLE)


def of_arro3(_: Path) -> Any:
    arro3 = pytest.importorskip("arro3.core", reason="arro3 is not installed")
    return arro3.Table.from_arrow(TABLE)


def delta_dataset(path: Path) -> Any:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    deltalake.write_deltalake(path / "delta", TABLE)
    return deltalake.DeltaTable(path / "delta").to_pyarrow_dataset()


def parquet(path: Path, table: pa.Table = TABLE, group: int = 300) -> Path:
    pq.write_table(table, path / "one.parquet", row_group_size=group)
    return path / "one.parquet"


def feather(path: Path) -> pads.Dataset:
    with pa.ipc.new_file(path / "one.arrow", TABLE.schema) as file:
        file.write_table(TABLE, 100)
    return pads.dataset(path / "one.arrow", format="ipc")


PRODUCERS: dict[str, Callable[[Path], Any]] = {
    "protocol": lambda _: Producer(TABLE),
    "reader": lambda _: reader(),
    "dictionaries": lambda _: reader(TABLE.set_column(3, "c", TABLE["c"].dictionary_encode())),
    "scanner": lambda _: pads.dataset(TABLE).scanner(),
    "in_memory_dataset": lambda _: pads.dataset(TABLE),
    "parquet_dataset": lambda path: pads.dataset(parquet(path)),
    "filtered_dataset": lambda path: pads.dataset(parquet(path)).filter(pc.field("t") >= 0),
    "union_dataset": lambda path: pads.dataset([pads.dataset(parquet(path))]),
    "arrow_dataset": feather,
    "duckdb": lambda path: duckdb.sql(f"select * from '{parquet(path)}'"),
    "lazy_frame": lambda path: pl.scan_parquet(parquet(path)),
    "lazy_categories": lambda _: pl.LazyFrame(TABLE).with_columns(pl.col("c").cast(pl.Categorical)),
    "ibis": ibis_table,
    "datafusion": datafusion_frame,
    "arro3": of_arro3,
    "deltalake": delta_dataset,
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize(
    "condition", [None, [("t", "<", 100), ("s", "in", ["s0", "s2"])], (pc.field("y") > 30) & (pc.field("c") == "x")]
)
def test_a_producer_gives_what_its_table_gives(
    name: str, condition: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorstash.sources.streams._ROWS", 128)
    gc.collect()  # other tests may have left some
    before = descriptors()
    stash = ts.load(PRODUCERS[name](tmp_path), filter=condition, **ARGUMENTS)
    expected = ts.load(TABLE, filter=condition, **ARGUMENTS)
    assert stash.entities == expected.entities
    assert stash.vocabulary("c") == expected.vocabulary("c")
    assert stash.offsets.tolist() == expected.offsets.tolist()
    for column in expected:
        np.testing.assert_array_equal(stash[column].numpy(), expected[column].numpy())
    if name not in (
        "duckdb",
        "datafusion",
        "deltalake",
        "lazy_frame",
        "lazy_categories",
        "ibis",
    ):  # they keep their own
        del stash, expected
        assert descriptors() == before


PIECES = st.lists(st.integers(0, 50), max_size=8)
VALUES = [None, "", "a", "b", "é" * 20]


@settings(max_examples=40)
@given(PIECES, PIECES, st.integers(0, 100))
def test_the_key_is_of_the_rows_and_not_of_the_batches(one: list[int], other: list[int], seed: int) -> None:
    """However a producer cuts its rows, they are the same data; one value more or less is other data."""
    from tensorstash.ingest.segment_key import contents
    from tensorstash.sources.read import Wanted
    from tensorstash.sources.streams import open_stream

    rows = max(sum(one), sum(other), 2)
    texts = [VALUES[k] for k in np.random.default_rng(seed).integers(0, len(VALUES), rows)]
    table = pa.table({"n": np.arange(rows), "s": pa.array(texts, pa.string())})

    def key(table: pa.Table, sizes: list[int], encode: bool) -> tuple[str, list[Any]]:
        ends = [*np.cumsum(sizes).tolist(), rows]
        pieces = [table.slice(a, b - a) for a, b in zip([0, *ends], ends)]
        if encode:
            pieces = [piece.set_column(1, "s", piece["s"].dictionary_encode()) for piece in pieces]
        batches = [batch for piece in pieces for batch in piece.combine_chunks().to_batches()]
        source = open_stream(pa.RecordBatchReader.from_batches(pieces[0].schema, batches), Wanted(None), None, None)
        found = [row for unit in source.units for batch in unit.decode(["s", "n"]) for row in batch.to_pylist()]
        return contents(source, ["n", "s"]), found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorstash.sources.streams._ROWS", 16)
        first, found = key(table, one, encode=False)
        assert found == [{"s": text, "n": n} for n, text in enumerate(texts)]
        assert key(table, other, encode=True) == (first, found)
        assert key(table.slice(1).slice(0, rows), [], encode=False)[0] != first


def test_only_what_is_wanted_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    frame = pl.scan_parquet(parquet(tmp_path))
    select = pl.LazyFrame.select

    def noted(self: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
        asked.append(names)
        return select(self, names)

    monkeypatch.setattr(pl.LazyFrame, "select", noted)
    planned = ts.plan(frame, ["y"], time="t", entity="s", filter=[("day", "<", date(2024, 1, 3))])
    assert asked == []
    assert planned.skipped == ("c", "unused")
    assert asked == [["s", "t", "y", "day"]]


@settings(max_examples=30)
@given(
    st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
    st.sampled_from(["i", "u", "f", "h", "s", "d", "ms", "us"]),
    st.data(),
)
def test_a_filter_of_a_lazy_frame_is_that_of_its_table(operator: str, name: str, data: st.DataObject) -> None:
    moments = [datetime(2024, 1, 1, 0, 0, 0, k) for k in (0, 1, 999, 1000)]
    values: dict[str, list[Any]] = {
        **{"i": [-1, 0, 2**62, None], "u": [0, 1, 255, None], "f": [0.1, float("nan"), -1.5, None]},
        **{"h": [0.1, 0.7, float("nan"), None], "s": ["", "a", "B", None], "d": [date(2024, 1, 1), None] * 2},
        **{"ms": moments, "us": moments},
    }
    types = {"i": pl.Int64, "u": pl.UInt8, "f": pl.Float64, "h": pl.Float32, "s": pl.String, "d": pl.Date}
    dtypes = {**types, "ms": pl.Datetime("ms"), "us": pl.Datetime("us")}
    frame = pl.DataFrame({"n": range(4)}).with_columns(
        pl.Series(column, values[column]).cast(dtypes[column])  # type: ignore[arg-type]
        for column in values
    )
    likely = st.sampled_from([value for value in values[name] if value is not None])
    others = st.sampled_from([0, 1, -1, 256, 0.1, 0.7, float("nan"), "a", date(2024, 1, 1), moments[1]])
    value: Any = data.draw(likely | others)
    if operator in ("in", "not in"):
        value = [value, data.draw(likely)]
    condition = [(name, operator, value)]
    try:
        expected: Any = ts.load(frame, ["n"], filter=condition)["n"].tolist()
    except (TypeError, ValueError) as error:
        expected = str(error).replace("frame", "LazyFrame")
    try:
        found: Any = ts.load(frame.lazy(), ["n"], filter=condition)["n"].tolist()
    except (TypeError, ValueError) as error:
        found = str(error)
    assert isinstance(found, str) == isinstance(expected, str)
    assert isinstance(found, str) or found == expected


@pytest.mark.parametrize(
    ("condition", "is_pushed"),
    [
        (pl.col("n") * 2 > pl.col("n") + 3, True),
        ((pl.col("s") == "a") | (pl.col("h") < 0.5), True),
        ([("n", ">", 3), ("h", "<", 0.5)], False),
        (pc.field("n") > 3, False),
    ],
)
def test_polars_leaves_out_rows_that_a_filter_of_its_own_excludes(condition: Any, is_pushed: bool) -> None:
    frame = pl.DataFrame({"n": range(6), "s": [*"abcabc"], "h": pl.Series([0.1] * 6, dtype=pl.Float32)})
    pushed = []

    def source(columns: Any, predicate: Any, _rows: Any, _batch: Any) -> Any:
        pushed.append(predicate is not None)
        rows = frame if predicate is None else frame.filter(predicate)
        yield rows.select(columns) if columns is not None else rows

    lazy = register_io_source(source, schema=frame.schema)
    assert ts.load(lazy, ["n"], filter=condition)["n"].equal(ts.load(frame, ["n"], filter=condition)["n"])
    assert pushed == [is_pushed]


def test_a_dataset_is_read_by_row_groups(tmp_path: Path) -> None:
    """Files and row groups that keys and statistics exclude are not, also where a column is missing in a file."""
    for key in "ab":
        parquet_dir = tmp_path / f"k={key}"
        parquet_dir.mkdir()
        parquet(parquet_dir, pa.table({"t": np.arange(10), "y": np.arange(10) * 0.5}), 5)
    dataset = pads.dataset(tmp_path, partitioning="hive")
    stash = ts.load(dataset, ["y", "k"], filter=[("k", "=", "b"), ("t", ">=", 5)])
    assert stash["y"].tolist() == [2.5, 3.0, 3.5, 4.0, 4.5]
    assert stash.vocabulary("k") == ["b"]
    planned = ts.plan(dataset, ["y"], filter=[("k", "=", "b"), ("t", ">=", 5)])
    assert (planned.rows, planned.choice.source.pieces, len(planned.choice.source.units)) == (5, 2, 1)
    dataset = pads.dataset(tmp_path, partitioning="hive")
    (tmp_path / "k=b" / "one.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ts.errors.SourceError, match=rf"\A{tmp_path}/k=b/one.parquet is not a readable Parquet file: "):
        ts.load(dataset, ["y"])


def test_sharing_a_stream(shm: Path) -> None:
    """Equal rows are one copy, which is found by reading them; others are another one."""
    for table in (TABLE, TABLE.slice(0), TABLE.slice(3)):
        stash = ts.load(reader(table), **ARGUMENTS, share="stream")
        assert len(stash["value"]) == table.num_rows
    assert ts.shared.list().height == 2


def test_derived_and_static_columns() -> None:
    stash = ts.load(reader(), {"twice": pl.col("y") * 2}, entity="s", static={"e": "s"})
    np.testing.assert_array_equal(stash["twice"], ts.load(TABLE, ["y"], entity="s")["y"] * 2)
    assert stash.static["e"].tolist() == [0, 1, 2]


def test_times_have_the_unit_that_their_producer_says() -> None:
    """Some hand out batches in another one."""

    def load(ticks: list[int]) -> list[int]:
        batch = pa.record_batch({"t": pa.array(ticks, pa.timestamp("ns"))})
        declared = pa.schema({"t": pa.timestamp("us")})
        return ts.load(pa.RecordBatchReader.from_batches(declared, [batch]), ["t"])["t"].tolist()

    assert load([1000, 2000]) == [1, 2]
    with pytest.raises(ts.errors.SourceError, match=like("would lose data: 1001")):
        load([1001, 2000])


# Errors


def test_a_reader_is_read_once() -> None:
    once = reader()
    with pytest.raises(ts.errors.ColumnError, match="did you mean 'y'"):
        ts.load(once, ["yy"])
    assert ts.load(once, ["y"])["y"].shape == (ROWS,)
    with pytest.raises(ts.errors.SourceError, match="has no rows: it is empty, or it was read before"):
        ts.load(once, ["y"])
    assert ts.load(Producer(TABLE.slice(0, 0)), ["y"])["y"].shape == (0,)


def test_rows_are_named_by_their_number() -> None:
    table = pa.table({"t": [*range(70_000), 5], "y": np.zeros(70_001)})
    with pytest.raises(ts.errors.DataError, match=r"in source rows 5 and 70,000\."):
        ts.load(Producer(table), time="t")


def failing(error: Exception) -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches()
    raise error


def test_a_producer_that_fails() -> None:
    broken = pa.RecordBatchReader.from_batches(TABLE.schema, failing(pa.ArrowInvalid("the line is down")))
    with pytest.raises(ts.errors.SourceError, match="RecordBatchReader cannot be read to its end: the line is down"):
        ts.load(broken, ["y"])
    own = pa.RecordBatchReader.from_batches(TABLE.schema, failing(LookupError("of the caller's own code")))
    with pytest.raises(LookupError, match="of the caller's own code"):
        ts.load(own, ["y"])
    frame = pl.LazyFrame({"y": ["1", "x"]}).with_columns(pl.col("y").cast(pl.Int64))
    with pytest.raises(ts.errors.SourceError, match=r"\Athe polars LazyFrame cannot be read to its end: .*conversion"):
        ts.load(frame)
    with pytest.raises(ts.errors.SourceError, match=r"\Athe polars LazyFrame cannot be read to its end: "):
        ts.load(pl.LazyFrame({"y": [1]}).select("z"))
    with pytest.raises(ts.errors.SourceError, match=r"\Athe duckdb DuckDBPyRelation cannot be read to its end: "):
        ts.load(duckdb.sql("select case when range = 2000000 then error('no') else range end y from range(3000000)"))
    with pytest.raises(ts.errors.SourceError, match=r"\Athe duckdb DuckDBPyRelation cannot be read to its end: Conv"):
        ts.load(duckdb.sql("select ('x' || range)::int as y from range(3)"))
    gc.collect()
    interrupted = pa.RecordBatchReader.from_batches(TABLE.schema, interrupt())
    before = descriptors()
    with pytest.raises(KeyboardInterrupt):
        ts.load(interrupted, ["y"])
    gc.collect()
    assert descriptors() == before


def interrupt() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches()
    raise KeyboardInterrupt


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()  # errors of other tests may still hold files
    before = descriptors()

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("tensorstash.sources.spool.os.write", full)
        message = f"it has filled {tmp_path} after 0 bytes"
        with pytest.raises(ts.errors.SourceError, match=like(message)):
            ts.load(reader(), ["y"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ts.errors.SourceError, match="needs a temporary file, which cannot be made: "):
        ts.load(reader(), ["y"])
    assert os.listdir(tmp_path) == []
    gc.collect()
    assert descriptors() == before


def test_memory_does_not_grow_with_a_stream() -> None:
    """160 MB of a column that is loaded, and 160 MB of one that is not, in less than 100 MB of anonymous memory."""
    program = """
import re, threading, time, numpy as np, pyarrow as pa, tensorstash as ts
from pathlib import Path

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1e3

schema = pa.schema([("t", pa.int64()), ("y", pa.float64()), ("unused", pa.float64())])
def batches(count):
    for k in range(count):
        columns = [np.arange(k * 100_000, (k + 1) * 100_000), np.full(100_000, k / 2), np.zeros(100_000)]
        yield pa.RecordBatch.from_arrays([*map(pa.array, columns)], schema=schema)

ts.load(pa.RecordBatchReader.from_batches(schema, batches(2)), ["y"], time="t")
before, peak, done = anonymous(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
stash = ts.load(pa.RecordBatchReader.from_batches(schema, batches(200)), ["y"], time="t")
done = True
watcher.join()
assert len(stash["y"]) == 20_000_000 and stash["y"][-1] == 99.5
print(peak - before)
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100


def test_fields_of_structs_and_names_with_dots() -> None:
    table = pa.table({"wind": [{"speed": 1.5, "gust": 2.5}], "a.b": [3.0], "y": [4.0]})
    for source in (Producer(table), table.to_reader(), pl.LazyFrame(table)):
        stash = ts.load(source, {"speed": "wind.speed", "ab": "a.b"})
        assert (stash["speed"].tolist(), stash["ab"].tolist()) == ([1.5], [3.0])
    for name, message in (("wind.spede", "did you mean 'wind.speed'"), ("sun.height", "it has 'wind', 'a.b', 'y'")):
        with pytest.raises(ts.errors.ColumnError, match=f"has no column '{name}'; {message}"):
            ts.load(Producer(table), {"x": name})


# What DuckDB and ibis hand out


@pytest.mark.parametrize(
    ("value", "kind", "rows"),
    [
        (f"{2**127}::UHUGEINT", "UHUGEINT", float(2**127)),
        ("1::UHUGEINT", "UHUGEINT", 1.0),
        (f"[{2**127}::UHUGEINT, 1]", "UHUGEINT[]", [float(2**127), 1.0]),
        ("'10:00:00+01'::TIMETZ", "TIME WITH TIME ZONE", 36_000_000_000),
    ],
)
def test_types_that_duckdb_hands_out_as_other_values_are_refused(value: str, kind: str, rows: Any) -> None:
    """The cast that the error says works, also for names that need quotes."""
    for name in ("x", 'a "b', "it's"):
        quoted = '"' + name.replace('"', '""') + '"'
        relation = duckdb.sql(f"select {value} as {quoted}, 7 as y")
        with pytest.raises(ts.errors.SchemaError, match=like(f"column {name!r} is {kind}. Cast it in the")) as refused:
            ts.load(relation, [name])
        line = re.search(r"relation\.select\(.*\)(?=\.\Z)", str(refused.value))
        assert line is not None
        assert ts.load(eval(line[0], {"relation": relation}), {"x": name})["x"].tolist() == [rows]
        assert ts.load(relation, ["y"])["y"].tolist() == [7]
