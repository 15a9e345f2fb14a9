"""The inside of `stash/describe.py`, and `stash.describe`: figures against a loop over entities in numpy and polars."""

import math
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tensorstash as ts
from tensorstash.stash import describe
from tensorstash.stash.describe import spread_sample
from tests.oracle_load import like
from tests.words import By

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint16,
    torch.int64,
    torch.bool,
]
NUMBERS = ["mean", "std", "min", "25%", "50%", "75%", "max"]
COLUMNS = ["column", "count", "missing", *NUMBERS]


def slow_numbers(values: NDArray[Any]) -> list[float | None]:
    """Of the values of one column in one group."""
    known = sorted(float(value) for value in values if not math.isnan(value))
    count = len(known)
    if not known:
        return [0, len(values), *[None] * len(NUMBERS)]
    mean = math.fsum(known) / count
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (count - 1)) if count > 1 else None
    lower, median, upper = np.quantile(known, [0.25, 0.5, 0.75]).tolist()
    return [count, len(values) - count, mean, std, known[0], lower, median, upper, known[-1]]


def slow_codes(names: list[str | None]) -> list[Any]:
    """Of the texts of one column in one group."""
    there = len(names) - names.count(None)
    return [there, len(names) - there, *[None] * len(NUMBERS)]


def close(found: tuple[Any, ...], expected: list[Any]) -> None:
    """Counts, minimum and maximum exactly, what is computed to ten digits."""
    for name, one, other in zip(COLUMNS[1:], found, expected):
        if name in ("mean", "std", "25%", "50%", "75%") and other is not None:
            assert one == pytest.approx(other, rel=1e-10, abs=1e-10)
        else:
            assert one == other


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], NDArray[Any], torch.dtype, list[str | None]]:
    """Entities one after the other, numbers with NaN in a pack, and texts."""
    entity = [
        k for k, count in enumerate(draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))) for _ in range(count)
    ]
    dtype = draw(st.sampled_from(DTYPES))
    one = st.integers(0, 1) if dtype == torch.bool else st.integers(0, 100)
    values = draw(st.lists(st.none() | one, min_size=2 * len(entity), max_size=2 * len(entity)))
    pair = np.array([math.nan if value is None else value for value in values]).reshape(-1, 2)
    if not dtype.is_floating_point:
        pair = np.nan_to_num(pair, nan=1.0)
    texts = draw(st.lists(st.none() | st.sampled_from("abcde"), min_size=len(entity), max_size=len(entity)))
    return entity, pair, dtype, texts


@settings(max_examples=150)
@given(tables(), st.sampled_from([None, "entity"]))
def test_every_figure_is_that_of_a_loop(
    table: tuple[list[int], NDArray[Any], torch.dtype, list[str | None]], by: By | None
) -> None:
    entity, pair, dtype, texts = table
    source = {
        "e": [f"e{k}" for k in entity],
        "p": torch.from_numpy(pair).to(dtype),
        "s": pl.Series(texts, dtype=pl.String).to_arrow(),
    }
    columns: dict[str, Any] = {
        "p": "p",
        "s": ts.column("s", vocabulary=["d", "b", "a"]),
        "auto": "s",
        "h": ts.hashed("s", 2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # maybe no text is in the vocabulary
        stash = ts.load(source, columns, entity="e")
    frame = stash.describe(by=by)
    items = ["p[0]", "p[1]", "s", "auto", "h"]
    groups = [np.flatnonzero(np.array(entity) == k) for k in range(max(entity) + 1)] if by else [np.arange(len(entity))]
    assert frame.columns == [*(["e"] if by else []), *COLUMNS]
    assert frame["column"].to_list() == items * len(groups)
    if by:
        assert frame["e"].to_list() == [f"e{k}" for k in range(len(groups)) for _ in items]
    found = iter(frame.select(COLUMNS[1:]).rows())
    for rows in groups:
        for k in range(2):
            close(next(found), slow_numbers(pair[rows, k]))
        for _ in ("s", "auto", "h"):
            close(next(found), slow_codes([texts[row] for row in rows]))


def test_the_oracle_can_fail() -> None:
    assert slow_numbers(np.array([1.0, math.nan, 4.0])) == [2, 1, 2.5, math.sqrt(4.5), 1.0, 1.75, 2.5, 3.25, 4.0]
    assert slow_codes(["a", "b", "b", None, "z"]) == [4, 1, *[None] * 7]


def test_polars_says_the_same() -> None:
    rng = np.random.default_rng(0)
    values = pl.Series("y", rng.normal(1e6, 1, 5000)).set(pl.Series(rng.random(5000) < 0.1), None)
    frame = ts.load(pl.DataFrame({"y": values})).describe()
    theirs = dict(values.describe(interpolation="linear").rows())
    row = frame.row(0, named=True)
    assert (row["count"], row["missing"], row["min"], row["max"]) == (
        theirs["count"],
        theirs["null_count"],
        theirs["min"],
        theirs["max"],
    )
    for name in ("mean", "std", "25%", "50%", "75%"):
        assert row[name] == pytest.approx(theirs[name], rel=1e-9)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 20))
def test_a_sample_has_rows_from_all_over_each_group(sizes: list[int], most: int) -> None:
    rows = spread_sample(np.array(sizes, np.int64), most)
    assert rows.tolist() == sorted(set(rows.tolist()))
    begin = 0
    for size in sizes:
        own = [row - begin for row in rows.tolist() if begin <= row < begin + size]
        taken = min(size, most)
        assert len(own) == taken
        assert all(k * size // taken <= row < (k + 1) * size // taken for k, row in enumerate(own))
        begin += size


def test_quartiles_of_a_sample_are_near_and_the_rest_is_exact() -> None:
    rng = np.random.default_rng(0)
    entity, values = np.repeat([0, 1, 2], [100_000, 50, 60_000]), rng.random(160_050)
    stash = ts.load({"e": entity, "y": values}, ["y"], entity="e")
    exact = stash.describe(by="entity")
    with mock.patch.object(describe, "_SAMPLE", 5000):
        found, again = (stash.describe(by="entity") for _ in range(2))
    assert found.equals(again)
    assert found.drop("25%", "50%", "75%").equals(exact.drop("25%", "50%", "75%"))
    assert found.row(1) == exact.row(1)  # an entity with fewer rows is taken as a whole
    for name in ("25%", "50%", "75%"):
        gaps = (found[name] - exact[name]).abs().to_list()
        assert max(gaps) < 0.02
        assert min(gaps[0], gaps[2]) > 0


def test_static_columns_count_once_per_entity() -> None:
    source = {"e": ["b", "a", "b"], "size": [4.0, 2.0, 4.0], "kind": ["x", None, "x"], "y": [1, 2, 3], "count": [0] * 3}
    stash = ts.load(source, ["y"], entity="e", static=["size", "kind"])
    frame = stash.describe()
    assert frame["column"].to_list() == ["y", "size", "kind"]
    assert frame.select("count", "missing", "mean").rows() == [(3, 0, 2.0), (2, 0, 3.0), (1, 1, None)]
    assert stash.describe(by="entity")["column"].to_list() == ["y", "y"]
    named = ts.load(source, ["y"], entity=["count", "e"]).describe(by="entity")
    assert named.columns[:3] == ["entity.count", "e", "column"]
    assert named["e"].to_list() == ["a", "b"]


def test_packs_are_named_by_their_columns_and_lists_by_their_places() -> None:
    source = {"a": [1.0, 2.0], "b": [3.0, 4.0], "l": np.arange(8).reshape(2, 2, 2), "t": np.array([1, 3], "M8[s]")}
    frame = ts.load(source, {"p": ["a", "b"], "one": ["b"], "l": "l", "t": "t"}).describe()
    assert frame["column"].to_list() == ["p.a", "p.b", "one[0]", "l[0][0]", "l[0][1]", "l[1][0]", "l[1][1]", "t"]
    assert frame["mean"].to_list() == [1.5, 3.5, 3.5, 2.0, 3.0, 4.0, 5.0, 2.0]


def test_infinite_values_have_extremes_and_no_mean() -> None:
    (row,) = ts.load({"y": [1.0, math.inf, -math.inf]}).describe().rows(named=True)
    assert (row["count"], row["mean"], row["std"], row["min"], row["max"]) == (3, None, None, -math.inf, math.inf)


def test_quartiles_that_are_values_are_so_beside_infinite_ones() -> None:
    stash = ts.load({"f": [1.0, math.inf, 2.0], "g": [math.inf] * 3})
    quartiles = stash.describe().select("25%", "50%", "75%").rows()
    assert quartiles == [(1.5, 2.0, math.inf), (math.inf,) * 3]


def test_nothing_is_described_as_nothing() -> None:
    frame = pl.DataFrame(schema={"e": pl.String, "y": pl.Float32, "s": pl.String})
    stash = ts.load(frame, entity="e")
    assert stash.describe().select("column", "count", "mean").rows() == [("y", 0, None), ("s", 0, None)]
    empty = stash.describe(by="entity")
    assert (empty.columns, len(empty)) == (["e", *COLUMNS], 0)


def test_helpful_errors() -> None:
    stash = ts.load({"e": ["a"], "y": [1.0], "s": [2.0]}, ["y"], entity="e", static=["s"])
    cases: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (ts.errors.ColumnError, lambda: stash.describe(["x"]), "the stash has no column 'x'; it has 'y', 's'."),
        (TypeError, lambda: stash.describe("y"), "columns ... got the text 'y'"),
        (TypeError, lambda: stash.describe(5), "columns ... got 5"),  # type: ignore[arg-type]
        (ValueError, lambda: stash.describe([]), "columns ... got none"),
        (ValueError, lambda: stash.describe(by="day"), "by ... got 'day'"),  # type: ignore[arg-type]
        (
            ts.errors.ColumnError,
            lambda: stash.describe(["s"], by="entity"),
            "A static column has one value in each entity; 's' is one. Describe it without by=.",
        ),
    ]
    for kind, call, message in cases:
        with pytest.raises(kind, match=like(message)):
            call()
