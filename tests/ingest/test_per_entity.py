"""`ts.per_entity`, beside the same expression over the whole frame, its rows in order."""

import datetime
import gc
import json
import math
import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import in_order
from tensorstash.segments.limits import Limit
from tests.oracle_load import descriptors, exact, run_python, whole, write_ipc, write_parquet
from tests.sources.test_derive import held, stored

a, f, g, s, b, t, day, e = (pl.col(name) for name in ("a", "f", "g", "s", "b", "t", "day", "e"))

# Random frames, in every form


@st.composite
def frames(draw: st.DrawFn, least: int = 1) -> pl.DataFrame:
    """Entities of any size in any order, each of its times once, with nulls and NaN in every other column."""
    rows = draw(st.integers(least, 50))
    keys = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), min_size=rows, max_size=rows, unique=True))
    if draw(st.booleans()):
        keys.sort()
    numbers = st.integers(-(2**40), 2**40)

    def values(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | one, min_size=rows, max_size=rows))

    hours = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=hour) for _, hour in keys]
    return pl.DataFrame(
        {
            "e": [("Zü", "b", "", "c", "d")[code] for code, _ in keys],
            "t": hours,
            "a": values(numbers),
            "f": values(st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -0.0])),
            "g": draw(st.lists(st.floats(-1e3, 1e3), min_size=rows, max_size=rows)),
            "s": values(st.sampled_from(["x", "yy", "Zü", ""])),
            "b": values(st.booleans()),
            "day": values(st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1))),
        },
        schema={
            "e": pl.String,
            "t": pl.Datetime("us"),
            "a": pl.Int64,
            "f": pl.Float64,
            "g": pl.Float64,
            "s": pl.String,
            "b": pl.Boolean,
            "day": pl.Date,
        },
    )


def pieces(frame: pl.DataFrame, cuts: list[int]) -> list[pa.Table]:
    table = frame.to_arrow()
    return [table.slice(begin, end - begin) for begin, end in pairwise(cuts)]


def parquet(frame: pl.DataFrame, cuts: list[int], directory: Path) -> Any:
    return write_parquet(directory / "one.parquet", pieces(frame, cuts))


def parquets(frame: pl.DataFrame, cuts: list[int], directory: Path) -> Any:
    return [write_parquet(directory / f"{k:03}.parquet", [piece]) for k, piece in enumerate(pieces(frame, cuts))]


def feather(frame: pl.DataFrame, cuts: list[int], directory: Path) -> Any:
    return write_ipc(directory / "one.arrow", pieces(frame, cuts), None)


def table(frame: pl.DataFrame, cuts: list[int], _: Path) -> Any:
    return pa.concat_tables(pieces(frame, cuts))


def polars(frame: pl.DataFrame, _: list[int], __: Path) -> Any:
    return frame


def lazy(frame: pl.DataFrame, _: list[int], __: Path) -> Any:
    return frame.lazy()


def stream(frame: pl.DataFrame, cuts: list[int], _: Path) -> Any:
    return pa.RecordBatchReader.from_batches(
        frame.to_arrow().schema, [batch for piece in pieces(frame, cuts) for batch in piece.to_batches()]
    )


FORMS: list[Callable[[pl.DataFrame, list[int], Path], Any]] = [parquet, parquets, feather, table, polars, stream]
if hasattr(pl.LazyFrame, "collect_batches"):  # from polars 1.34 on
    FORMS.append(lazy)

# The oracle


def ordered(frame: pl.DataFrame, entity: list[str], time: str | None) -> pl.DataFrame:
    """The rows in the order of a stash."""
    if entity:
        first = (
            frame.with_row_index("row").group_by(entity, maintain_order=True).agg(pl.col("row").min().alias("first"))
        )
        frame = frame.join(first, on=entity, maintain_order="left").sort("first", maintain_order=True).drop("first")
    if time is None:
        return frame
    if not entity:
        return frame.sort(time)
    return pl.concat([part.sort(time) for part in frame.partition_by(entity, maintain_order=True)])


def expected(frame: pl.DataFrame, expression: pl.Expr, entity: list[str], time: str | None) -> pl.Series:
    rows = ordered(frame, entity, time)
    return rows.with_columns(expression.over(entity).alias("new") if entity else expression.alias("new"))["new"]


def check(
    source: Any,
    frame: pl.DataFrame,
    expressions: list[pl.Expr],
    entity: list[str] | None = None,
    time: str | None = "t",
    **options: Any,
) -> ts.Stash:
    """Each expression equals the one over the whole frame, to the bit, also where values are missing."""
    entity = ["e"] if entity is None else entity
    expect = [stored(expected(frame, expression, entity, time)) for expression in expressions]
    columns = {
        f"x{k}": ts.column(ts.per_entity(expression), fill=fill)
        for k, (expression, (fill, _)) in enumerate(zip(expressions, expect))
    }
    keys: Any = None if not entity else entity[0] if len(entity) == 1 else entity
    stash = ts.load(source, columns, entity=keys, time=time, **options)
    for k, (expression, (_, values)) in enumerate(zip(expressions, expect)):
        assert exact(held(stash, f"x{k}"), values), str(expression)
    return stash


EXPRESSIONS: list[pl.Expr] = [
    f,
    f.shift(1),
    f.shift(-2, fill_value=0.5),
    f.forward_fill(),
    f.forward_fill(limit=2),
    f.backward_fill(1),
    f.fill_nan(None).interpolate(),
    f.interpolate_by("t"),
    f.diff(),
    f.pct_change(),
    f.cum_sum(),
    g.rolling_mean(3),
    g.rolling_mean(3, min_samples=1, center=True),
    g.rolling_std(4, min_samples=2),
    g.rolling_mean_by("t", window_size="5h"),
    g.rolling_max_by("t", window_size="1d", closed="left"),
    g.ewm_mean(half_life=2),
    f.ewm_mean_by("t", half_life="3h"),
    g.sum(),
    g.mean(),
    (g - g.mean()) / g.std(),
    g.rank("ordinal"),
    g.sort(),
    g.reverse(),
    f.is_null(),
    f.cast(pl.Float32).cum_max(),
    a.shift(1),
    a.diff().cast(pl.Int32, strict=False),
    a.cum_count(),
    a.fill_null(strategy="max"),
    a.mean(),
    s.shift(1),
    s.forward_fill(),
    s.fill_null("none"),
    s.first() + "!",
    (s == s.shift(1)),
    s.rle_id(),
    b.forward_fill(1),
    b.cum_sum(),
    b.any(),
    pl.when(b).then(f.shift(1)).otherwise(a),
    t.diff(),
    t.dt.hour() - t.dt.hour().first(),
    t.first(),
    day.forward_fill(),
    day.max() - day,
    e + "/" + pl.len().cast(pl.String),
    pl.len(),
    pl.int_range(pl.len()),
    pl.lit(2.5),
    pl.corr("g", "a"),
    pl.max_horizontal(a, a.shift(1)),
    pl.struct("a", "b").shift(1).struct.field("a"),
    f.last(),
    f.count(),
    f.quantile(0.3),
    g.map_batches(lambda values: values - values.len(), return_dtype=pl.Float64),
]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_values_are_those_of_polars_over_the_whole_frame(data: st.DataObject) -> None:
    frame = data.draw(frames())
    form = data.draw(st.sampled_from(FORMS))
    cuts = sorted({0, frame.height, *data.draw(st.lists(st.integers(0, frame.height), max_size=6))})
    expressions = data.draw(st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=12))
    entity = data.draw(st.sampled_from([["e"], ["e"], ["b", "e"], []]))
    time = data.draw(st.sampled_from(["t", "t", None]))
    if "b" in entity:
        frame = frame.with_columns(b=b.fill_null(False).cast(pl.Int8))
        expressions = [one for one in expressions if "b" not in one.meta.root_names()] or [f]
    if not entity:
        frame = frame.unique("t", maintain_order=True)
        cuts = [0, frame.height]
        expressions.append(f)  # a load reads at least one column
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(in_order, "_BLOCK", data.draw(st.integers(1, 60)))
        check(form(frame, cuts, Path(directory)), frame, expressions, entity, time)


@pytest.mark.parametrize("block", [3, 70, 1 << 18])
def test_all_expressions_in_one_load(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "_BLOCK", block)
    rng = np.random.default_rng(0)
    rows = 300
    holes = pl.Series(rng.random(rows) < 0.3)
    frame = pl.DataFrame(
        {
            "e": [f"e{k}" for k in rng.integers(0, 9, rows)],
            "t": pl.Series(rng.permutation(rows) * 3_600_000_000).cast(pl.Datetime("us")),
            "a": rng.integers(-9, 9, rows),
            "f": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(0, 30, rows)),
            "g": rng.normal(0, 1e3, rows),
            "s": [f"{'Zü' * (k % 2)}{k % 7}" for k in rng.integers(0, 99, rows)],
            "b": rng.random(rows) < 0.5,
            "day": pl.Series(rng.integers(0, 20_000, rows).astype(np.int32)).cast(pl.Date),
        }
    ).with_columns(pl.when(~holes).then(pl.col("a", "f", "s", "b", "day")))
    check(frame, frame, EXPRESSIONS)
    check(frame.sort("e", "t"), frame.sort("e", "t"), EXPRESSIONS)


def test_files_of_other_kinds_and_places(tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": [2, 1, 2, 1, 2], "t": [3, 1, 1, 2, 2], "g": [0.5, 1.5, None, 2.5, 3.5]})
    expressions = [g.shift(1), g.forward_fill(), g.mean()]
    frame.write_csv(tmp_path / "a.csv")
    check(tmp_path / "a.csv", frame, expressions)
    memory = fsspec.filesystem("memory")
    with memory.open("/per_entity/a.parquet", "wb") as file:
        frame.write_parquet(file)
    check("per_entity/a.parquet", frame, expressions, filesystem=memory)
    check(frame.to_pandas(), frame, expressions)
    check(
        {"e": np.array([2, 1]), "t": [3, 1], "g": [1.0, 2.0]},
        frame[:2].with_columns(g=pl.Series([1.0, 2.0])),
        [g.diff()],
    )


def test_a_source_without_rows_and_one_without_inputs() -> None:
    empty = pl.DataFrame(schema={"e": pl.String, "t": pl.Int64, "g": pl.Float64})
    stash = ts.load(empty, {"x": ts.per_entity(g.shift(1)), "n": ts.per_entity(pl.len())}, entity="e", time="t")
    assert (stash["x"].tolist(), stash["n"].tolist()) == ([], [])
    row = {"row": ts.per_entity(pl.int_range(pl.len()))}
    assert ts.load({"g": [1.0, 2.0, 3.0], "t": [3, 2, 1]}, row, time="t")["row"].tolist() == [0, 1, 2]
    assert ts.load({"g": [1.0, 2.0, 3.0]}, row | {"g": "g"})["row"].tolist() == [0, 1, 2]
    message = (
        "A load reads at least one column of the source, which has the rows; ts.per_entity(0.int_range([len()])) names "
        "none, and no other argument does. Name one in columns=, entity= or time=."
    )
    with pytest.raises(ValueError, match=whole(message)):
        ts.load({"g": [1.0, 2.0, 3.0]}, row)


# How the columns are chosen and stored

DATA: dict[str, Any] = {
    "e": ["B", "A", "B", "A", "B"],
    "t": np.array([3, 1, 1, 2, 2]).astype("M8[D]").astype("M8[ms]"),
    "g": [5.0, 1.0, None, 2.0, 4.0],
    "s": ["x", None, None, "y", "x"],
}


def load(columns: Any, **options: Any) -> ts.Stash:
    return ts.load(DATA, columns, entity="e", time="t", **options)


def test_packs_casts_fills_masks_hashes_and_aliases() -> None:
    lag, filled = ts.per_entity(g.shift(1)), ts.per_entity(s.forward_fill())
    stash = load(
        {
            "pack": ["g", g * 2, lag, ts.per_entity(g.count())],
            "cast": ts.column(lag, dtype=torch.bfloat16, fill=-1.0),
            "whole": ts.column(ts.per_entity(g.count()), dtype=torch.int8),
            "is_valid": ts.is_valid(lag),
            "are_valid": ts.is_valid([lag, "g"]),
            "hashed": ts.hashed(filled, 1000),
            "given": ts.column(filled, vocabulary=["y"]),
            "text": filled,
            "filled": ts.column(filled, fill="none"),
        },
        dtype=torch.float32,
    )
    nan = math.nan
    pack = [
        [nan, nan, nan, 2.0],
        [4.0, 8.0, nan, 2.0],
        [5.0, 10.0, 4.0, 2.0],
        [1.0, 2.0, nan, 2.0],
        [2.0, 4.0, 1.0, 2.0],
    ]
    assert stash.entities == ["B", "A"]
    assert stash["pack"].dtype == torch.float32
    assert exact(stash["pack"].tolist(), pack)
    assert (stash["cast"].dtype, stash["cast"].tolist()) == (torch.bfloat16, [-1.0, -1.0, 4.0, -1.0, 1.0])
    assert (stash["whole"].dtype, stash["whole"].tolist()) == (torch.int8, [2, 2, 2, 2, 2])
    assert stash["is_valid"].tolist() == [False, False, True, False, True]
    assert stash["are_valid"].tolist() == [[False, False], [False, True], [True, True], [False, True], [True, True]]
    assert held(stash, "text") == [None, "x", "x", None, "y"]
    assert held(stash, "filled") == ["none", "x", "x", "none", "y"]
    assert stash["given"].tolist() == [-1, 1, 1, -1, 0]
    assert (stash["hashed"] < 0).tolist() == [True, False, False, True, False]
    assert stash.about("cast").nulls == 3
    named = load([ts.per_entity(g.shift(1).alias("lag")), "g"])
    assert list(named) == ["lag", "g"]
    with pytest.raises(
        ValueError, match=r"An expression needs a name; got ts\.per_entity\(g\.shift\(\[1\]\)\) in a list"
    ):
        load([lag])


def test_a_null_is_a_null_and_nan_is_nan() -> None:
    """Only nulls are filled, also of integers and booleans, which have no NaN."""
    source = pa.table(
        {"f": [1.0, None, math.nan, None], "i": [1, None, 3, None], "b": [True, None, False, None], "t": [4, 3, 2, 1]}
    )
    columns = {name: ts.column(ts.per_entity(pl.col(name).backward_fill())) for name in "fib"}
    stash = ts.load(source, columns, time="t")
    assert exact(stash["f"].tolist(), [math.nan, math.nan, 1.0, 1.0])
    assert stash["i"].tolist() == [3, 3, 1, 1]
    assert stash["b"].tolist() == [False, False, True, True]


def test_inputs_may_be_computed_by_row() -> None:
    """Columns of the same call: of expressions, of `ts.calendar`, and fields of structs; the source has precedence."""
    data = DATA | {"wind": [{"speed": float(k)} for k in range(5)]}
    columns: dict[str, Any] = {
        "double": g * 2,
        "s": s.str.to_uppercase(),
        "weekday": ts.calendar("dayofweek"),
        "of_double": ts.per_entity(pl.col("double").shift(1)),
        "of_weekday": ts.column(ts.per_entity(pl.col("weekday").diff()), fill=0),
        "of_source": ts.per_entity(s.max()),
        "of_field": ts.per_entity(pl.col("wind.speed").cum_sum()),
    }
    stash = ts.load(data, columns, entity="e", time="t")
    assert exact(stash["of_double"].tolist(), [math.nan, math.nan, 8.0, math.nan, 2.0])
    assert stash["of_weekday"].tolist() == [0, 1, 1, 0, 1]
    assert held(stash, "of_source") == ["x", "x", "x", "y", "y"]
    assert stash["of_field"].tolist() == [2.0, 6.0, 6.0, 1.0, 4.0]
    plan = ts.plan(data, columns, entity="e", time="t")
    assert plan.skipped == ()
    assert {*plan.not_kept} == {"g", "s", "wind.speed", "wind"}
    with pytest.raises(ts.errors.ColumnError, match="the mapping has no column 'of_double'"):
        load({"of_double": ts.per_entity(g.diff()), "twice": ts.per_entity(pl.col("of_double").diff())})


def test_rows_that_the_filter_excludes_are_not_seen(tmp_path: Path) -> None:
    expressions = [g.shift(1), pl.len(), g.rolling_mean_by("t", window_size="2d")]
    for number, frame in enumerate((pl.DataFrame(DATA), pl.DataFrame(DATA).sort("e", "t"))):
        (directory := tmp_path / str(number)).mkdir()
        for source in (frame, parquet(frame, [0, 2, 5], directory)):
            check(source, frame.filter(g != 4.0), expressions, filter=[("g", "!=", 4.0)])


def test_static_columns() -> None:
    static = {"mean": ts.per_entity(g.mean()), "last": ts.per_entity(s.last())}
    stash = load(["g"], static=static)
    assert stash.static["mean"].tolist() == [4.5, 1.5]
    assert stash.static["last"].tolist() == [0, 1]
    message = (
        "A static column has one value in each entity; 'lag' of entity 'B' is nan in source row 0 (counted by entity "
        "and time) and 4.0 in 2 (counted by entity and time). Load it with columns= instead."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        load(["g"], static={"lag": ts.per_entity(g.shift(1))})
    stores = pl.DataFrame({"e": ["A", "B"], "size": [1, 2]})
    message = (
        "ts.per_entity computes columns over the rows of a series; a table of static columns has one row for each "
        "entity, and 'x' is of such a table. Leave ts.per_entity out."
    )
    with pytest.raises(ValueError, match=whole(message)):
        load(["g"], static=(stores, {"x": ts.per_entity(pl.col("size").sum())}))


def test_several_entity_columns(tmp_path: Path) -> None:
    rows = 60
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "e": rng.integers(0, 3, rows),
            "k": rng.choice(["u", "v"], rows),
            "t": rng.permutation(rows),
            "g": rng.random(rows),
        }
    )
    check(
        parquet(frame, [0, 7, 60], tmp_path), frame, [g.shift(1), g.cum_sum(), pl.len(), pl.col("k") + "!"], ["e", "k"]
    )


# Sharing, files, plans


def test_the_expression_is_part_of_the_key() -> None:
    first = load({"x": ts.per_entity(g.rolling_mean(2))}, share="per-entity")
    again = load({"x": ts.per_entity(g.rolling_mean(2))}, share="per-entity")
    assert again.path == first.path
    others: list[Any] = [ts.per_entity(g.rolling_mean(2, min_samples=1)), ts.per_entity(g.rolling_sum(2)), g * 1]
    paths = {str(load({"x": other}, share="per-entity").path) for other in others}
    assert len(paths | {str(first.path)}) == 4
    # the same text of polars, by row and per entity
    assert load({"x": g * 1}, share="per-entity").path != load({"x": ts.per_entity(g * 1)}, share="per-entity").path


def test_python_functions_are_refused_where_processes_share(tmp_path: Path) -> None:
    called = ts.per_entity(g.map_batches(lambda values: values * 2, return_dtype=pl.Float64))
    assert exact(load({"x": called})["x"].tolist(), [math.nan, 8.0, 10.0, 2.0, 4.0])
    message = (
        "With share= or file= a column must be the same in all processes, which cannot verify that they hold the same "
        "Python function; g.python_udf() calls one. Write it with the functions of polars, or load without them."
    )
    for options in ({"share": "udf"}, {"file": tmp_path / "x"}):
        with pytest.raises(ValueError, match=whole(message)):
            load({"x": called}, **options)
    assert message in ts.plan(DATA, {"x": called}, share="udf").notes[0]


def test_a_file_holds_the_same(tmp_path: Path) -> None:
    columns = {"x": ts.per_entity(g.forward_fill()), "s": ts.per_entity(s.shift(1))}
    stash, in_memory = load(columns, file=tmp_path / "x.safetensors"), load(columns)
    for name in columns:
        assert exact(held(stash, name), held(in_memory, name))
    assert ts.open(tmp_path / "x.safetensors").vocabulary("s") == in_memory.vocabulary("s")
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_a_plan_shows_the_temporary_file_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1_000_000
    source = {"e": np.zeros(rows, np.int64), "t": np.arange(rows), "g": np.zeros(rows), "f": np.zeros(rows, np.float32)}
    columns: dict[str, Any] = {"x": ts.per_entity(g.shift(1)), "y": ts.per_entity(g - f), "g": "g"}
    plan = ts.plan(source, columns, entity="e", time="t")
    assert plan.temporary == rows * (8 + 8 + 4)
    assert plan.not_kept == ("f",)
    assert "per entity: 20.0 MB in a temporary file, unless rows are grouped by entity and ordered by time" in repr(
        plan
    )
    assert "g.shift([1]) per entity" in repr(plan)
    assert not ts.plan(source, ["g"]).temporary
    free = os.statvfs_result((4096, 4096, 1000, 1000, 1000, 0, 0, 0, 0, 255))
    monkeypatch.setattr("tensorstash.sources.spool.os.statvfs", lambda _: free)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    why = (
        f"The input of ts.per_entity is kept in a temporary file while it is loaded; it needs 20 MB and 4 MB are free "
        f"in {tmp_path}. Set TMPDIR to a directory on a disk with more room."
    )
    note = f"a load will be refused if its rows have to be brought into order: {why}"
    assert ts.plan(source, columns, entity="e", time="t").notes == (note,)
    ts.load(source, columns, entity="e", time="t")
    gc.collect()
    before = descriptors()
    with pytest.raises(ts.errors.SourceError, match=whole(why)):
        ts.load(source | {"t": np.arange(rows)[::-1]}, columns, entity="e", time="t")
    assert os.listdir(tmp_path) == []
    gc.collect()
    assert descriptors() == before


def test_a_giant_entity_must_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorstash.ingest.memory.memory_limits", lambda: [Limit(100_000, "in RAM", "")])
    columns: dict[str, Any] = {"x": ts.per_entity(g.shift(1)), "n": ts.per_entity(g.is_null())}
    for entity, who in (("e", "entity 7"), (None, "the series")):
        message = (
            f"ts.per_entity computes over all rows of an entity at a time, and {who} has 2,000 rows; the mapping needs "
            "0 MB and 0 MB are free in RAM. Leave out some of its columns, or load fewer rows with filter=."
        )
        with pytest.raises(ts.errors.NoMemoryError, match=whole(message)):
            ts.load({"e": np.full(2000, 7), "g": np.zeros(2000)}, columns, entity=entity)
    ts.load({"e": np.arange(2000) // 2, "g": np.zeros(2000)}, columns, entity="e")


def test_memory_beside_the_stash_is_bounded_by_blocks(tmp_path: Path) -> None:
    """Beside what a load of one column takes, less than the inputs, which are 72 MB, in order or grouped by time."""
    rows, entities = 3_000_000, 1000
    each = rows // entities
    arrays = {"e": np.repeat(np.arange(entities), each), "t": np.tile(np.arange(each), entities)}
    in_rows = pa.table(arrays | {name: np.arange(rows) / k for k, name in enumerate("ghi", 1)})
    order = pa.array(np.arange(rows).reshape(entities, -1).T.reshape(-1))
    for name, made in (("in_order", in_rows), ("by_time", in_rows.take(order))):
        write_parquet(tmp_path / name, [made.slice(k, 100_000) for k in range(0, rows, 100_000)], compression="none")
    program = """
import json, sys, threading
import polars as pl, tensorstash as ts
from tensorstash.ingest import in_order

in_order._BLOCK = 1 << 14

def peak(source, columns):
    done, found = threading.Event(), []

    def watch():
        while not done.wait(0.002):
            found.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    stash = ts.load(source, columns, entity="e", time="t")
    done.set()
    watcher.join()
    return max(found, default=0), stash

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

columns = {"x": ts.per_entity(pl.col("g").shift(1) + pl.col("h").cum_max() + pl.col("i")), "n": ts.per_entity(pl.len())}
peak({"e": [2, 1, 2], "t": [3, 2, 1], "g": [1.0] * 3, "h": [1.0] * 3, "i": [1.0] * 3}, columns)
without, stash = peak(sys.argv[1], ["g"])
rows = stash["g"]
grown, stash = peak(sys.argv[1], columns)
right = stash["x"][1:3000].equal(rows[:2999] + rows[1:3000] / 2 + rows[1:3000] / 3)
print(json.dumps([without, grown, right, stash["n"].int().unique().tolist()]))
"""
    for name in ("in_order", "by_time"):
        without, grown, right, counts = json.loads(run_python(program, tmp_path / name))
        assert right
        assert counts == [each]
        assert grown < without + 72e6


# What is refused


def test_what_is_no_expression_or_several() -> None:
    for given_ in ("g", 1, ["g"], ts.per_entity(g)):
        message = f"ts.per_entity takes a polars expression; got {given_!r}. Write ts.per_entity(pl.col('y').diff())."
        with pytest.raises(TypeError, match=whole(message)):
            ts.per_entity(given_)  # type: ignore[arg-type]
    for several in (pl.all().shift(1), pl.col("g", "s").first(), pl.nth(0), pl.first()):
        with pytest.raises(ValueError, match="An expression names its columns one by one and gives one"):
            ts.per_entity(several)


@pytest.mark.parametrize("entity", ["e", None])
def test_another_number_of_values(entity: str | None) -> None:
    for expression, name in ((g.filter(g != 1), "A"), (g.head(2), "B"), (g.append(g), "B")):
        where = f"entity '{name}'" if entity else "the mapping"
        with pytest.raises(
            ts.errors.DataError,
            match=r"\AAn expression over the rows of an entity gives a value for each row, or one for all; "
            rf"'g\..* per entity' does not in {where}: .* Let values be null instead of leaving rows out\.\Z",
        ):
            ts.load(DATA | {"g": [5.0, 1.0, 3.0, 2.0, 4.0]}, {"x": ts.per_entity(expression)}, entity=entity)


def test_an_expression_that_fails_in_one_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"e": np.repeat(np.arange(40), 3), "t": np.tile([2, 1, 3], 40), "s": [str(k) for k in range(119)] + ["oh"]}
    message = (
        "An expression must have a value in every row; 's.strict_cast(Int64).diff([1]) per entity' fails in entity 39: "
        "conversion from `str` to `i64` failed in column 's' for 1 out of 3 values: [\"oh\"]. Let it be null there, as "
        "cast(..., strict=False) does, or leave such rows out with filter=."
    )
    for block in (5, 1 << 18):
        monkeypatch.setattr(in_order, "_BLOCK", block)
        with pytest.raises(ts.errors.DataError, match=whole(message)):
            ts.load(data, {"x": ts.column(ts.per_entity(s.cast(pl.Int64).diff()), fill=0)}, entity="e", time="t")


def test_a_missing_value_of_an_integer_names_its_entities() -> None:
    message = (
        "Integers, booleans and times have no missing value; column 's.str.len_chars().fill_null([0]).shift([1]) per "
        "entity' has 2 nulls in the entities 'B' to 'A'. Say what to store: ts.column(..., fill=...), or load it "
        "as floating: ts.column(..., dtype=torch.float32)."
    )
    with pytest.raises(ts.errors.DataError, match=whole(message)):
        load({"x": ts.per_entity(s.str.len_chars().fill_null(0).shift(1))})


def test_what_does_not_suit_or_is_random() -> None:
    message = (
        r"\AAn expression must suit its columns; '\[s \+ 1\]\.shift.* per entity' cannot be computed from the mapping, "
        r"where 's' is string: .*\. Cast the columns, or the result\.\Z"
    )
    with pytest.raises(ts.errors.SchemaError, match=message):
        load({"x": ts.per_entity((s + 1).shift(1))})
    with pytest.raises(ts.errors.SchemaError, match=r"same values every time; g\.shuffle\(\) is random\."):
        load({"x": ts.per_entity(g.shuffle())})
    with pytest.raises(ts.errors.SchemaError, match=r"The codes of a pl\.Categorical depend on what was read before;"):
        load({"x": ts.per_entity(s.cast(pl.Categorical).to_physical().shift(1))})
    with pytest.raises(ts.errors.SchemaError, match=r"A stash holds numbers, .* gives List\(Float64\)\. Cast it\."):
        load({"x": ts.per_entity(g.implode())})
    with pytest.raises(ts.errors.ColumnError, match="the mapping has no column 'h'"):
        load({"x": ts.per_entity(pl.col("h").shift(1))})


def test_types_that_are_sorted_and_types_that_cannot_be() -> None:
    lists = pa.array([["a"], None, ["b", None]], pa.list_(pa.string()))
    source = {
        "t": pa.array([3, 1, 2]),
        "lists": lists,
        "codes": pa.array(["c", None, "d"], pa.dictionary(pa.int8(), pa.string())),
        "struct": pa.array([{"x": 1}, None, {"x": 3}]),
        "pair": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
        "price": pa.array([1, None, 3], pa.decimal128(9, 2)),
    }
    schema = pa.schema([(name, array.type) for name, array in source.items()])
    expressions: dict[str, Any] = {
        "lists": ts.per_entity(pl.col("lists").list.len().shift(1, fill_value=0).fill_null(9)),
        "codes": ts.per_entity(pl.col("codes").shift(1)),
        "struct": ts.per_entity(pl.col("struct").struct.field("x").backward_fill()),
        "pair": ts.per_entity(pl.col("pair").reverse()),
        "price": ts.per_entity(pl.col("price").cast(pl.Float64).sum()),
    }
    for order in ([0, 1, 2], [1, 2, 0]):
        rows = pa.table({name: [array[row].as_py() for row in order] for name, array in source.items()}, schema)
        stash = ts.load(rows, expressions, time="t")
        assert stash["lists"].tolist() == [0, 9, 2]
        assert held(stash, "codes") == [None, None, "d"]
        assert stash["struct"].tolist() == [3, 3, 1]
        assert stash["pair"].tolist() == [[1.0, 2.0], [5.0, 6.0], [3.0, 4.0]]
        assert stash["price"].tolist() == [4.0, 4.0, 4.0]
    inside = pa.array([["a"], ["b"], []], pa.list_(pa.dictionary(pa.int32(), pa.string())))
    columns = {"x": ts.per_entity(pl.col("lists").list.len().shift(1, fill_value=0))}
    assert ts.load(pa.table({"t": [1, 2, 3], "lists": inside}), columns, time="t")["x"].tolist() == [0, 1, 1]
    message = (
        "ts.per_entity sorts rows that are not grouped by entity and ordered by time, and Arrow cannot sort lists and "
        "structs of dictionaries and views; column 'lists' of the pyarrow Table is list<item: dictionary<"
        "values=string, indices=int32, ordered=0>>. Sort the source, or cast the column."
    )
    with pytest.raises(ts.errors.SchemaError, match=whole(message)):
        ts.load(pa.table({"t": [2, 1, 3], "lists": inside}), columns, time="t")


def test_views_of_texts_are_sorted() -> None:
    if int(pa.__version__.split(".")[0]) < 18:
        pytest.skip("pyarrow 17 cannot cast views of texts")
    source = pa.table({"t": [3, 1, 2], "s": pa.array(["c", None, "d"], pa.string_view())})
    stash = ts.load(source, {"x": ts.per_entity(s.shift(1)), "y": ts.per_entity(s.forward_fill())}, time="t")
    assert (held(stash, "x"), held(stash, "y")) == ([None, None, "d"], [None, "d", "c"])
