"""Series in columns, `layout="wide"`: equal to the same values one below the other, in every form of a source."""

import gzip
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import tensorstash as ts
from tests.layouts import FORMS, Producer, bits, peak_of
from tests.oracle_load import whole

VALUES: dict[str, pl.DataType] = {
    "float32": pl.Float32(),
    "float64": pl.Float64(),
    "int16": pl.Int16(),
    "bool": pl.Boolean(),
    "text": pl.String(),
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, list[str], list[str]]:
    """A frame with times, some series in any order, a shared column and one that nobody needs; series, and a choice."""
    kind = draw(st.sampled_from([*VALUES]))
    names = draw(st.permutations([f"s{k}" for k in range(draw(st.integers(1, 6)))]))
    rows = draw(st.integers(1, 7))
    time = [datetime(2024, 1, 1) + timedelta(hours=k) for k in draw(st.permutations(range(rows)))]
    columns: dict[str, Any] = {"when": time, "holiday": [k % 2 for k in range(rows)], "note": ["n"] * rows}
    for number, name in enumerate(names):
        cells = [number * 100 + k for k in range(rows)]
        values: list[Any] = [f"v{c % 7}" if kind == "text" else c % 2 == 0 if kind == "bool" else c for c in cells]
        if kind in ("float32", "float64", "text"):
            values = [None if draw(st.integers(0, 4)) == 0 else value for value in values]
        columns[name] = pl.Series(name, values, VALUES[kind])
    order = draw(st.permutations(list(columns)))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return pl.DataFrame(columns).select(order), [name for name in order if name in names], chosen


FILTERS: list[Any] = [
    None,
    [("when", ">=", datetime(2024, 1, 1, 3))],
    [("site", "in", ["s0", "s2"])],
    (pc.field("holiday") == 1) | pc.field("y").is_null(),
]


@settings(max_examples=100, deadline=None)
@given(
    case=frames(),
    form=st.sampled_from([*FORMS]),
    condition=st.sampled_from(range(len(FILTERS))),
    together=st.sampled_from([1, 7, 1 << 20]),
)
def test_wide_is_as_its_long_form(
    case: tuple[pl.DataFrame, list[str], list[str]], form: str, condition: int, together: int
) -> None:
    """By `unpivot` of polars: all of the series, or some in an order of their own, for rows in any order."""
    frame, names, chosen = case
    for series, given_ in ((names, pl.col("^s[0-9]+$")), (chosen, chosen)):
        long = frame.unpivot(series, index=["when", "holiday", "note"], variable_name="site", value_name="y")
        shared: dict[str, Any] = {"holiday": "holiday", "twice": pl.col("holiday") * 2}
        arguments: dict[str, Any] = {"entity": "site", "time": "when", "filter": FILTERS[condition]}
        with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
            patch.setattr("tensorstash.sources.wide._ROWS", together)
            source = FORMS[form](frame.to_arrow(), Path(path))
            found = ts.load(source, {"y": given_} | shared, layout="wide", **arguments)
        assert bits(found) == bits(ts.load(long, {"y": "y"} | shared, **arguments))


def ltsf(path: Path, rows: int = 300, series: int = 30) -> pl.DataFrame:
    """A file as of electricity and traffic: a date, and columns with numbers for names, some of whole numbers."""
    hours = [datetime(2016, 7, 1) + timedelta(hours=k) for k in range(rows)]
    columns: dict[str, Any] = {"date": hours}
    for k in range(series):
        columns[str(k)] = [k * 10 + i for i in range(rows)] if k % 3 == 0 else [k + i / 8 for i in range(rows)]
    frame = pl.DataFrame(columns)
    text = frame.with_columns(pl.col("date").dt.strftime("%Y-%m-%d %H:%M:%S")).write_csv()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return frame


@pytest.mark.parametrize("name", ["traffic.csv", "traffic.csv.gz"])
def test_a_csv_file_of_many_series_loads_in_one_call(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is parsed once, whatever the number of series; rows may lie in many blocks."""
    frame = ltsf(tmp_path / name)
    monkeypatch.setattr("tensorstash.sources.csv_files._BLOCK", 4000)
    monkeypatch.setattr("tensorstash.sources.streams.ROWS", 64)
    monkeypatch.setattr("tensorstash.sources.wide._ROWS", 900)
    stash = ts.load(tmp_path / name, layout="wide", entity="sensor", time="date")
    assert [*stash] == ["value"]
    assert stash.entities == [str(k) for k in range(30)]
    assert stash["value"].dtype == torch.float64
    long = frame.unpivot(frame.columns[1:], index="date", variable_name="sensor", value_name="value")
    long = long.with_columns(pl.col("date").dt.cast_time_unit("ms"))
    expected = ts.load(long, ["value"], entity="sensor", time="date")
    assert stash["value"].tolist() == expected["value"].tolist()
    assert stash.time is not None
    assert expected.time is not None
    assert (stash.time * 1000).tolist() == expected.time.tolist()
    windows = ts.Windows(stash, history=24, horizon=6)
    assert len(windows) == 30 * (300 - 29)


def test_the_choices_of_a_column_hold_for_the_values() -> None:
    frame = pl.DataFrame({"t": [1, 2], "a": [1, None], "b": [3, 4], "n": ["x", "y"]})
    spec = ts.column(["a", "b"], dtype=torch.float16, fill=-1)
    stash = ts.load(frame, {"y": spec, "label": "n"}, layout="wide", entity="e", time="t")
    assert stash["y"].tolist() == [1.0, -1.0, 3.0, 4.0]
    assert stash["y"].dtype == torch.float16
    assert stash.vocabulary("label") == ["x", "y"]
    numbers = ts.load(frame.drop_nulls(), {"y": cs.integer() - cs.by_name("t")}, layout="wide", entity="e", time="t")
    assert numbers.entities == ["a", "b"]
    assert numbers["y"].tolist() == [1, 3]


def test_integers_and_floats_are_floats_if_no_integer_is_rounded() -> None:
    stash = ts.load(pl.DataFrame({"a": [1, 2], "b": [0.5, None]}), layout="wide", entity="e")
    assert stash["value"].nan_to_num(-1).tolist() == [1.0, 2.0, 0.5, -1.0]
    message = (
        "Series of integers and floats are read as floats, exactly; column 'a' is int64, and does not fit into double: "
        "Integer value 9007199254740993 not in range: -9007199254740992 to 9007199254740992. Write all series in one "
        "type."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        ts.load(pl.DataFrame({"a": [2**53 + 1, 2], "b": [0.5, 1.5]}), layout="wide", entity="e")


def test_a_frame_of_static_columns_is_joined_by_the_names() -> None:
    frame = pl.DataFrame({"t": [1, 2], "a": [1.0, 2.0], "b": [3.0, 4.0]})
    sensors = pl.DataFrame({"sensor": ["b", "a"], "lane": [5, 6]})
    stash = ts.load(frame, layout="wide", entity="sensor", time="t", static=sensors)
    assert stash.static["lane"].tolist() == [6, 5]


def test_a_filter_on_the_rows_leaves_row_groups_out(tmp_path: Path) -> None:
    """And one on the values does not, whose name no column of the source has."""
    frame = pl.DataFrame({"t": range(40), "a": [float(k) for k in range(40)], "b": [k + 0.5 for k in range(40)]})
    frame.write_parquet(tmp_path / "x.parquet", row_group_size=10)
    arguments: dict[str, Any] = {"layout": "wide", "entity": "e", "time": "t"}
    early = ts.load(tmp_path / "x.parquet", filter=[("t", "<", 10)], **arguments)
    assert early["value"].tolist() == [*map(float, range(10)), *(k + 0.5 for k in range(10))]
    high = ts.load(tmp_path / "x.parquet", filter=pc.field("value") >= 38, **arguments)
    assert high["value"].tolist() == [38.0, 39.0, 38.5, 39.5]
    one = ts.load(tmp_path / "x.parquet", filter=[("e", "=", "b")], **arguments)
    assert one.entities == ["b"]


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("form", ["file", "table", "stream"])
def test_wide_is_shared_under_a_key_of_its_own(form: str, tmp_path: Path) -> None:
    source = FORMS[form](pa.table({"t": [1, 2, 3], "a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}), tmp_path)
    arguments: dict[str, Any] = {"layout": "wide", "entity": "e", "time": "t", "share": "series"}
    first = ts.load(source, {"y": pl.exclude("t")}, **arguments)
    assert ts.load(source, {"y": pl.exclude("t")}, **arguments).path == first.path
    assert first["y"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    others = [ts.load(source, {"y": given_}, **arguments).path for given_ in (["a", "b"], ["b", "a"], pl.col("a", "b"))]
    assert len({first.path, *others}) == 4


def test_wide_is_written_to_a_file(tmp_path: Path) -> None:
    ltsf(tmp_path / "x.csv")
    arguments: dict[str, Any] = {"layout": "wide", "entity": "e", "time": "date"}
    stash = ts.load(tmp_path / "x.csv", file=tmp_path / "x.safetensors", **arguments)
    assert bits(ts.open(tmp_path / "x.safetensors")) == bits(stash) == bits(ts.load(tmp_path / "x.csv", **arguments))


def test_a_plan_tells_the_rows_of_all_series(tmp_path: Path) -> None:
    ltsf(tmp_path / "x.csv")
    planned = ts.plan(tmp_path / "x.csv", {"y": ["3", "4"]}, layout="wide", entity="sensor", time="date")
    assert planned.rows == 600
    lines = repr(planned).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["column", "y", "sensor", "date"]
    assert "double" in lines[2]
    assert lines[-1].startswith("skipped: 0, 1, 2, 5, 6")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_long_form_is_never_in_memory(ending: str, tmp_path: Path) -> None:
    """The long form of the Parquet file has 40 MB of values, 80 MB of times, 40 MB of codes."""
    rows, series = (50_000, 200) if ending == "parquet" else (10_000, 100)
    table = pa.table(
        {"t": np.arange(rows)} | {f"s{k}": (np.arange(rows, dtype=np.float32) % 1000) + k for k in range(series)}
    )
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=12_500, use_dictionary=False, compression="none")
    else:
        csv.write_csv(table, path)
    call = 'ts.load(source, {"y": pl.exclude("t")}, layout="wide", entity="e", time="t", dtype=None, progress=False)'
    stash, peak = peak_of(call, path)
    assert stash == f"{rows * series} rows, {series} entities"
    assert peak < 100


# Errors

ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no_entity": (
        {"columns": {"y": ["a", "b"]}},
        ValueError,
        "With layout='wide' the names of the columns are the entities, and entity= is the new name that they go under; "
        "got entity=None. Write entity='series'.",
    ),
    "a_list_of_names": (
        {"columns": ["a", "b"], "entity": "e"},
        TypeError,
        "With layout='wide' the values of all series are one column, which needs a name; got columns=['a', 'b']. Write "
        "columns={'y': [...]}, or with polars {'y': pl.exclude('date')}.",
    ),
    "two_lists": (
        {"columns": {"y": ["a"], "x": ["b"]}, "entity": "e"},
        ValueError,
        "With layout='wide' one entry of columns= is the series, a list of names or a polars selector, and any other "
        "one is a column that all series share; got 'y' and 'x' as series. Name one list.",
    ),
    "no_list": (
        {"columns": {"y": "a"}, "entity": "e"},
        ValueError,
        "With layout='wide' one entry of columns= is the series, a list of names or a polars selector, and any other "
        "one is a column that all series share; got none as series. Name one list.",
    ),
    "twice": (
        {"columns": {"y": ["a", "a"]}, "entity": "e"},
        ValueError,
        "With layout='wide' each series is named once; 'a' is named twice.",
    ),
    "computed": (
        {"columns": {"y": pl.exclude("t") * 2}, "entity": "e"},
        ValueError,
        "With layout='wide' the series are columns as they are; ([cs.all() - cs.by_name('t', require_all=false)]) * 2 "
        "computes them. Select them, and compute from the values: columns={'y': pl.exclude('date'), 'log': "
        "pl.col('y').log()}.",
    ),
    "time_among_them": (
        {"columns": {"y": pl.all()}, "entity": "e", "time": "t"},
        ts.errors.SchemaError,
        "With layout='wide' a column is a series, or shared by all series; 't' of the polars frame is both. Leave it "
        "out of columns={'y': ...}, with polars by pl.exclude('t').",
    ),
    "none_left": (
        {"columns": {"y": pl.col("^z.*$")}, "entity": "e"},
        ts.errors.SchemaError,
        "With layout='wide' there is at least one series; none of the columns of the polars frame is chosen. Name "
        "some: columns={'y': [...]}.",
    ),
    "another_type": (
        {"entity": "e", "time": "t"},
        ts.errors.SchemaError,
        "With layout='wide' all series have one type; 'name' of the polars frame is large_string, and 'a' is double. "
        "Leave one out: columns={'value': [...]}.",
    ),
    "a_name_that_is_taken": (
        {"columns": {"a": ["a", "b"]}, "entity": "e"},
        ts.errors.SchemaError,
        "With layout='wide' entity= and the name of the series in columns= are new names; 'a' in columns= is a column "
        "of the polars frame. Choose another.",
    ),
    "an_entity_that_is_taken": (
        {"columns": {"y": ["a", "b"]}, "entity": "name"},
        ts.errors.SchemaError,
        "With layout='wide' entity= and the name of the series in columns= are new names; 'name' in entity= is a "
        "column of the polars frame. Choose another.",
    ),
    "unknown": (
        {"columns": {"y": ["a", "bb"]}, "entity": "e"},
        ts.errors.ColumnError,
        "the polars frame has no column 'bb'; did you mean 'b'?",
    ),
    "regular": (
        {"columns": {"y": ["a"]}, "entity": "e", "time": ts.regular("t", 1)},
        ValueError,
        "ts.regular gives the times of lists, so it needs layout='lists'. Write it, or name the time column.",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_helpful_errors_of_wide(name: str) -> None:
    frame = pl.DataFrame({"t": [1, 2], "a": [1.0, 2.0], "b": [3.0, 4.0], "name": ["x", "y"]})
    arguments, error, message = ERRORS[name]
    with pytest.raises(error, match=whole(message)):
        ts.load(frame, layout="wide", **arguments)


def test_errors_of_values_name_row_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1, 2, 2], "a": [1, 2, 3], "b": [4, None, 6]}), tmp_path / "x.parquet")
    where = f"{tmp_path / 'x.parquet'}, row group 0"
    arguments: dict[str, Any] = {"layout": "wide", "entity": "e"}
    with pytest.raises(
        ts.errors.DataError,
        match=whole(
            f"A time occurs once in each entity; entity 'a' has t 2 in source rows 1 ({where}) of column 'a' and 2 "
            f"({where}) of column 'a'. Drop one, or name the column that distinguishes the series as entity=."
        ),
    ):
        ts.load(tmp_path / "x.parquet", time="t", **arguments)
    with pytest.raises(ts.errors.DataError, match=f"column 'value'.*{where}, columns 'a' to 'b'"):
        ts.load(tmp_path / "x.parquet", {"value": ["a", "b"]}, **arguments)
    (tmp_path / "x.csv").write_text("t,a,b\n1,2,3\n2,4,x\n")
    with pytest.raises(ts.errors.DataError, match=r"'x' in column 'b' is no double \(.*x.csv, line 3\)"):
        ts.load(tmp_path / "x.csv", {"y": ["a", "b"]}, schema={"b": "float64"}, **arguments)


def test_many_small_pieces_are_brought_together_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is read once, and not once for each group of series."""
    for k in range(5):
        pl.DataFrame({"t": [k], "a": [float(k)], "b": [k + 0.5]}).write_parquet(tmp_path / f"{k}.parquet")
    monkeypatch.setattr("tensorstash.sources.wide._PIECES", 4)
    stash = ts.load(tmp_path, layout="wide", entity="e", time="t")
    assert stash["value"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 0.5, 1.5, 2.5, 3.5, 4.5]
    assert ts.load(Producer(pa.table({"t": [0], "a": [1.0]})), layout="wide", entity="e", time="t").rows == 1
