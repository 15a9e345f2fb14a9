"""`ts.per_entity`, beside the same expression over the whole frame, its rows in order."""

import datetime
import math
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
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.ingest import in_order
from tests.oracle_load import exact, write_ipc, write_parquet
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


FORMS: list[Callable[[pl.DataFrame, list[int], Path], Any]] = [parquet, parquets, feather, table, polars, lazy, stream]

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
    if not entity and time:
        frame = frame.unique("t", maintain_order=True)
        cuts = [0, frame.height]
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
