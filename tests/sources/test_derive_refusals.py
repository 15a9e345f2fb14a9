"""Computed columns that are refused: what needs other rows, chance, several columns, or does not fit."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like, write_parquet
from tests.sources.expressions import a, b, doubled, f, frame, items, s, t

BEYOND_ROWS: list[pl.Expr] = [
    a.shift(1),
    a + a.shift(-1),
    a.diff().abs(),
    a.pct_change(),
    f.rolling_mean(3),
    f.rolling_mean_by("t", "2h"),
    f.rolling_map(lambda values: values.sum(), 2),
    a.rank(),
    a.sum().over("b"),
    (a + b).over("s"),
    a.cum_sum(),
    a.cum_max() - a,
    a.cumulative_eval(pl.element().sum()),
    a.mean(),
    a - a.mean(),
    (a - a.min()) / (a.max() - a.min()),
    a.clip(a.quantile(0.1), 9),
    pl.when(a > a.median()).then(1).otherwise(b),
    pl.sum_horizontal(a, b.max()),
    pl.coalesce(f, f.first()),
    pl.struct(a, b.cum_sum()).struct.field("b"),
    pl.format("{}", a.last()),
    a.sort(),
    a.reverse(),
    a.arg_sort(),
    a.unique(),
    a.is_duplicated(),
    a.is_first_distinct(),
    a.mode(),
    a.value_counts(),
    a.rle_id(),
    a.peak_max(),
    f.fill_null(strategy="forward"),
    f.fill_null(strategy="mean"),
    f.forward_fill(),
    f.fill_null(f.mean()),
    f.interpolate(),
    f.interpolate_by("a"),
    f.ewm_mean(alpha=0.5),
    f.ewm_mean_by("t", half_life="1h"),
    a.sample(3),
    a.shuffle(seed=1),
    a.filter(b > 2),
    a.drop_nulls(),
    a.head(2),
    a.gather([0]),
    a.get(0),
    a.implode(),
    items.explode(),
    a + pl.len(),
    a + pl.int_range(pl.len()),
    a + pl.lit(pl.Series([1, 2])),
    a.search_sorted(b),
    a.append(b),
    a.dot(b),
    pl.corr("a", "b"),
    pl.fold(pl.lit(0), lambda one, other: one + other, [a, b]),
    a.sum().rolling("t", period="2h"),
    a.map_batches(lambda values: values, return_dtype=pl.Int64),
    s.str.to_datetime(),  # guesses the format from the first rows
    a + pl.lit(2).sum(),
]


def test_what_depends_on_other_rows_is_refused() -> None:
    for expression in BEYOND_ROWS:
        # not every release of polars tells that the column of times of a rolling window is an input
        with pytest.raises(ts.errors.SchemaError, match=r"needs other rows|unable to find column"):
            ts.load(frame(9), {"x": expression})
    with pytest.raises(ts.errors.SchemaError, match="needs other rows"):
        repr(ts.plan(frame(9), {"x": a.shift(1)}))


def test_the_part_that_needs_other_rows_is_named_with_the_line_to_write_instead() -> None:
    for expression, part in (
        ((a - a.min()) / (a.max() - a.min()), a.min()),
        (pl.when(a > a.median()).then(1).otherwise(b), a.median()),
        ((a + b).over("s"), (a + b).over("s")),
        (pl.struct(a, b.cum_sum()).struct.field("b"), b.cum_sum()),
    ):
        message = f"{part} needs other rows ... pl.scan_parquet(path).with_columns(lag=pl.col('y').shift(1).over("
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            ts.load(frame(9), {"x": expression})


def test_membership_in_another_column_is_refused() -> None:
    """The other column would be the values of one piece."""
    with (
        pytest.raises(
            ts.errors.SchemaError,
            match="needs other rows",
        ),
        pytest.deprecated_call(),
    ):
        ts.load(frame(9), {"x": a.is_in(b.cast(pl.Int64))})
    assert ts.load(frame(9), {"x": a.is_in(items)})["x"].dtype == torch.bool


def test_a_format_that_is_told_is_elementwise() -> None:
    assert ts.load({"s": ["2024-01-01"]}, {"x": s.str.to_date("%Y-%m-%d")})["x"].tolist() == [19723]


@pytest.mark.parametrize(
    "expression",
    [
        items.list.sample(1).list.first(),
        items.list.sample(1, seed=3).list.sum(),
        items.list.eval(pl.element().shuffle()).list.first(),
        items.list.eval(pl.element().rank("random")).list.first(),
    ],
)
def test_chance_is_refused(expression: pl.Expr) -> None:
    with pytest.raises(
        ts.errors.SchemaError,
        match="is random",
    ):
        ts.load(frame(9), {"x": expression})


def test_codes_of_a_categorical_are_refused_and_its_text_is_not() -> None:
    source = {"s": ["b", "a", "b"]}
    with pytest.raises(ts.errors.SchemaError, match=r"The codes of a pl.Categorical depend on what was read before"):
        ts.load(source, {"x": s.cast(pl.Categorical).to_physical()})
    assert ts.load(source, {"x": s.cast(pl.Categorical).alias("y")}).vocabulary("x") == ["a", "b"]
    assert ts.load(source, {"x": s.cast(pl.Enum(["a", "b"])).to_physical()})["x"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "expression",
    [
        pl.all(),
        pl.col("a", "b") + 1,
        pl.col("^a.*$"),
        pl.selectors.numeric() * 2,
        pl.sum_horizontal(pl.all()),
        pl.col("point").struct.unnest(),
    ],
)
def test_expressions_of_several_columns_are_refused(expression: pl.Expr) -> None:
    with pytest.raises(ValueError, match="may stand for several"):
        ts.load({"a": [1], "b": [2]}, {"x": expression})


def test_constants_are_refused() -> None:
    for expression in (pl.lit(3), pl.lit("z") + "y", pl.len()):
        with pytest.raises(ValueError, match="An expression must name a column of the source"):
            ts.load({"a": [1]}, {"x": expression})


def test_what_a_stash_cannot_hold_is_refused() -> None:
    for expression, kind in (
        (pl.struct("a", "b"), r"Struct\({'a': Int64, 'b': Int64}\)"),
        (pl.concat_list("a", "b"), r"List\(Int64\)"),
        (a.cast(pl.Int128), "Int128"),
        (a.map_elements(doubled, return_dtype=pl.Object), "Object"),
    ):
        with pytest.raises(ts.errors.SchemaError, match=f"A stash holds numbers, .* gives {kind}"):
            ts.load({"a": [1], "b": [2]}, {"x": expression})
    with pytest.raises(ts.errors.SchemaError, match="A pack holds plain numbers"):
        ts.load({"a": [1], "s": ["x"]}, {"x": ["a", s.str.to_uppercase()]})


def test_helpful_errors(tmp_path: Path) -> None:
    source = pa.table({"ask": [3, 4, 5], "s": ["1", "x", "3"], "t": [1, 2, 3]})
    path = write_parquet(tmp_path / "one.parquet", [source[:1], source[1:]])
    ask = pl.col("ask")

    def refused(kind: type[Exception], fragment: str, columns: Any, given_: Any = path, **options: Any) -> None:
        with pytest.raises(kind, match=fragment):
            ts.load(given_, columns, **options)

    refused(ts.errors.ColumnError, "has no column 'asq'; did you mean 'ask' or 's'", {"x": pl.col("asq") + 1})
    refused(ts.errors.SchemaError, "An expression must suit its columns; .* where 's' is string", {"x": s + 1})
    refused(
        ts.errors.DataError,
        r"An expression must have a value in every row; .* fails in .*one\.parquet, row group 1: conversion",
        {"x": s.cast(pl.Int64)},
    )
    refused(ts.errors.DataError, "has 1 null in .*row group 0", {"x": ask // 0}, filter=[("t", "==", 1)])
    refused(ts.errors.DataError, "A cast must keep the values; 300", {"x": ts.column(ask * 100, dtype=torch.int8)})
    refused(ts.errors.SchemaError, "has the name of the entity, the time", {"t": pl.col("t") * 2}, time="t")
    name = '[(col("ask")) * (dyn int: 2)]'  # as polars prints the expression
    refused(
        ts.errors.SchemaError, "An expression is named by its text", {"x": ask * 2, "y": name}, {"ask": [1], name: [3]}
    )
    refused(
        ts.errors.SchemaError,
        "unable to parse time zone",
        {"x": t.dt.hour()},
        {"t": pa.array([0], pa.timestamp("s", "+05:30"))},
    )
    for wrong in (pl.Series([1]), 3, {"a": pl.col("a")}, [[ask]], a.is_null):
        refused(TypeError, "A column must be a name", {"x": wrong})
        with pytest.raises(TypeError, match="A column must be a name"):
            ts.column(wrong)  # type: ignore[arg-type]


def test_functions_that_fail_or_break_their_word() -> None:
    def fail(value: int) -> int:
        raise KeyError(value)

    with pytest.raises(ts.errors.DataError, match=r"fails in the mapping: 7\. Make it null"):
        ts.load({"a": [7]}, {"x": a.map_elements(fail, return_dtype=pl.Int64)})
    told = a.map_batches(lambda values: values, return_dtype=pl.Float64, is_elementwise=True)
    short = a.map_batches(lambda values: values.head(2), return_dtype=pl.Int64, is_elementwise=True)
    for expression in (told, short):
        with pytest.raises(ts.errors.DataError, match=r"must have a value in every row; .* fails in the mapping"):
            ts.load({"a": [7, 8, 9]}, {"x": expression})
