"""What the package reads out of polars' texts, on known examples: another text of a new release fails here first."""

import polars as pl
import pytest

from tensorstash.columns.polars_texts import (
    calls_python,
    first_line,
    is_elementwise,
    is_random,
    is_wrong_length,
    parses_times,
    serialized,
    short_text,
)

a, b, items = pl.col("a"), pl.col("b"), pl.col("items")
EMPTY = pl.DataFrame(schema={"a": pl.Int64, "b": pl.Float64, "s": pl.String, "items": pl.List(pl.Int64)})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a, "a"),
        (a + 1, "a + 1"),
        ((a + b) * 2.5, "([a + b]) * 2.5"),
        (a.alias("x"), "a"),
        (b.abs().alias("x"), "b.abs()"),
        (pl.len(), "len()"),
    ],
)
def test_short_text(expression: pl.Expr, text: str) -> None:
    assert short_text(expression) == text


def test_a_python_function_has_no_serialized_form() -> None:
    scale = 2
    assert serialized(a + 1) == serialized(pl.col("a") + 1) != serialized(a + 2)
    assert serialized(a.map_elements(abs, pl.Int64)) is None
    assert serialized(a.map_elements(lambda value: int(str(value)[:scale]), pl.Int64)) is None
    assert serialized(a.map_batches(lambda values: values, is_elementwise=True)) is None


@pytest.mark.parametrize(
    ("expression", "random"),
    [
        (items.list.sample(1), True),
        (items.list.sample(fraction=0.5), True),
        (items.list.eval(pl.element().shuffle()), True),
        (items.list.eval(pl.element().sample(1)), True),
        (items.list.eval(pl.element().rank("random")), True),
        (items.list.eval(pl.element().rank("dense")), False),
        (items.list.first(), False),
        (pl.col("sample") + pl.col("Random"), False),
        (pl.col("s").str.replace("shuffle", "x"), False),
    ],
    ids=str,
)
def test_is_random(expression: pl.Expr, random: bool) -> None:
    assert is_random(expression) == random


@pytest.mark.parametrize(
    ("expression", "by_row"),
    [
        (a + b, True),
        (pl.when(a > 1).then(b), True),
        (items.list.sum(), True),
        (pl.col("s").str.to_date("%Y"), True),
        (a.shift(1), False),
        (b - b.mean(), False),
        (pl.sum_horizontal(a, b.max()), False),
        (a.sum().over("s"), False),
        (a + pl.len(), False),
        (a.map_batches(lambda values: values, return_dtype=pl.Int64), False),
        (a.map_batches(lambda values: values, return_dtype=pl.Int64, is_elementwise=True), True),
    ],
    ids=range(11),
)
def test_is_elementwise(expression: pl.Expr, by_row: bool) -> None:
    assert is_elementwise(expression, EMPTY) == by_row


def test_calls_that_have_a_remedy_of_their_own() -> None:
    assert calls_python(short_text(a.map_batches(lambda values: values, return_dtype=pl.Int64)))
    assert not calls_python(short_text(a + 1))
    assert parses_times(short_text(pl.col("s").str.to_datetime()))
    assert parses_times(short_text(pl.col("s").str.to_date("%Y")))
    assert not parses_times(short_text(pl.col("s").str.len_chars()))


def test_first_line() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="missing") as caught:  # the text is polars's
        EMPTY.lazy().select(pl.col("missing") + 1).collect()
    assert "missing" in first_line(caught.value)
    assert "\n" in str(caught.value).replace("\\n", "\n")  # the plan that is left out
    assert "\n" not in first_line(caught.value)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        (a.head(1), True),
        (a.head(2), True),
        (a.append(a), True),
        (a.head(2).over("s"), True),
        (pl.col("s").cast(pl.Int64), False),
    ],
    ids=range(5),
)
def test_is_wrong_length(expression: pl.Expr, wrong: bool) -> None:
    frame = pl.DataFrame({"a": [1, 2, 3], "s": ["x", "x", "x"]})
    with pytest.raises(pl.exceptions.PolarsError) as caught:
        frame.with_columns(x=expression)
    assert is_wrong_length(caught.value) == wrong
