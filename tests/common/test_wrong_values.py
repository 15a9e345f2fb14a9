"""Wrong values of every kind for every argument that takes one of a few: the error is ours, and short."""

import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

PACKAGE = str(Path(ts.__file__).parent)
DATA = {"e": ["a"] * 8 + ["b"] * 8, "t": np.tile(np.arange(8), 2), "y": np.arange(16.0), "k": ["u", "v"] * 8}
STASH = ts.load(DATA, ["y", "k"], entity="e", time="t")
WINDOWS = ts.Windows(STASH, 2, 1, columns=["y"])
POINTS = {"e": ["a"], "t": [4]}

WRONG: dict[str, Callable[[], Any]] = {
    "array": lambda: np.array([1, 2]),
    "matrix": lambda: np.array([[1, 2]]),
    "objects": lambda: np.array([None, {}], dtype=object),
    "tensor": lambda: torch.tensor([1.5, 2.0]),
    "meta": lambda: torch.zeros(2, device="meta"),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "frame": lambda: pl.DataFrame({"a": [1, 2]}),
    "series": lambda: pl.Series("s", [1, 2]),
    "expression": lambda: pl.lit(None),
    "query": lambda: pl.LazyFrame({"a": [1]}),
    "pandas": lambda: pd.DataFrame({"a": [1, 2]}),
    "NA": lambda: pd.NA,
    "table": lambda: pa.table({"a": [1]}),
    "1e30": lambda: 10**30,
    "nan": lambda: float("nan"),
    "complex": lambda: 1j,
    "decimal": lambda: Decimal("1.5"),
    "bytes": lambda: b"left",
    "nested": lambda: [["y"]],
    "dicts": lambda: [{}],
    "dict": lambda: {3: "y"},
    "function": lambda: len,
    "ellipsis": lambda: ...,
}


def loader(**arguments: Any) -> None:
    next(iter(ts.Loader(WINDOWS, **{"batch_size": 2} | arguments)))


CALLS: dict[str, Callable[[Any], Any]] = {
    "gaps": lambda value: ts.Windows(STASH, 2, gaps=value),
    "closed": lambda value: ts.Windows(STASH, 2, at=POINTS, closed=value),
    "unmatched": lambda value: ts.Windows(STASH, 2, at=POINTS, unmatched=value),
    "stride": lambda value: ts.Windows(STASH, 2, stride=value),
    "stride at points": lambda value: ts.Windows(STASH, 2, at=POINTS, stride=value),
    "require": lambda value: ts.Windows(STASH, 2, require=value),
    "where": lambda value: ts.Windows(STASH, 2, where=value),
    "closed of a span": lambda value: ts.During("y", -7, 0, max_rows=2, closed=value),
    "max_rows": lambda value: ts.During("y", -7, 0, max_rows=value),
    "age": lambda value: ts.During("y", -7, 0, max_rows=2, age=value),
    "step of a draw": lambda value: ts.Draw(-4, -1, value),
    "of": lambda value: WINDOWS.latest(value),
    "seed of a split": lambda value: WINDOWS.split_entities(0.5, seed=value),
    "expanding": lambda value: WINDOWS.folds(2, 1, expanding=value),
    "predictions": lambda value: WINDOWS.to_frame([0], value),
    "names": lambda value: WINDOWS.to_frame([0], torch.ones(1, 1), value),
    "a name": lambda value: WINDOWS.to_frame([0], torch.ones(1, 1), [value]),
    "origin": lambda value: WINDOWS.to_frame([0], torch.ones(1, 1), origin=value),
    "a window": lambda value: WINDOWS[[value]],
    "tail": lambda value: loader(tail=value),
    "prefetch": lambda value: loader(prefetch=value),
    "steps": lambda value: loader(steps=value),
    "device": lambda value: loader(device=value),
    "order": lambda value: loader(order=value),
    "an id of an order": lambda value: loader(order=[value]),
    "per": lambda value: ts.Weighted([1, 2], value),
    "epoch_size": lambda value: ts.Weighted([1, 2], epoch_size=value),
    "weight of a mix": lambda value: ts.Mix({"a": WINDOWS}, {"a": value}),
    "a column": lambda value: STASH[value],
    "entity values": lambda value: STASH.entity_values(value),
    "by": lambda value: STASH.describe(by=value),
    "columns": lambda value: STASH.describe(value),
    "duplicates": lambda value: ts.load(DATA, ["y"], duplicates=value),
    "share": lambda value: ts.load(DATA, ["y"], share=value),
    "overwrite": lambda value: ts.load(DATA, ["y"], overwrite=value),
    "file of a plan": lambda value: ts.plan(DATA, ["y"]).load(file=value),
    "cyclic": lambda value: ts.calendar("hour", cyclic=value),
    "scaled": lambda value: ts.calendar("hour", scaled=value),
    "an operator": lambda value: ts.load(DATA, ["y"], filter=[("t", value, 1)]),
    "strict": lambda value: ts.attach("nowhere", strict=value),
    "entities of shards": lambda value: ts.cluster.shard_of(value, 2),
    "engine": lambda value: ts.cluster.shard(DATA, ["y"], entity="e", to="nowhere", engine=value),
}
# what these arguments take
TAKEN = {
    ("entities of shards", "array"),
    ("entities of shards", "series"),
    ("entities of shards", "dict"),
    ("order", "array"),
    ("order", "series"),
    ("order", "dict"),
    ("seed of a split", "1e30"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("argument", CALLS)
def test_a_wrong_value_ends_in_an_error_of_ours(argument: str) -> None:
    faults = []
    for kind, make in WRONG.items():
        try:
            CALLS[argument](make())
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            is_ours = last.filename.startswith(PACKAGE) and (last.line or "").startswith("raise ")
            if not is_ours or not isinstance(error, (ValueError, TypeError, LookupError)) or len(str(error)) > 400:
                faults.append(f"{kind}: {type(error).__name__}: {error}")
        else:
            if (argument, kind) not in TAKEN:
                faults.append(f"{kind} is taken")
    assert not faults, "\n".join(faults)


def test_counts_of_any_library_become_integers() -> None:
    """An array or a tensor of one integer in arithmetic with int64 arrays would give other types."""
    for two in (np.int64(2), torch.tensor(2)):
        for order in (ts.Blocks(two), ts.Lanes(two), ts.Weighted([1.0] * 10, epoch_size=two)):  # type: ignore[arg-type]
            plain = type(order)(2) if not isinstance(order, ts.Weighted) else ts.Weighted([1.0] * 10, epoch_size=2)
            made, expected = ([*ts.Sampler(10, 2, order=each)] for each in (order, plain))
            assert made == expected
        past = ts.During("y", -3, 0, max_rows=3, min_rows=two)  # type: ignore[arg-type]
        plain_past = ts.During("y", -3, 0, max_rows=3, min_rows=2)
        sizes = [len(ts.Windows(STASH, spans={"past": each})) for each in (past, plain_past)]
        assert sizes[0] == sizes[1]


def test_components_and_parts_have_texts_as_names() -> None:
    """The order of a mix depends on them, so they must be the same in the next run."""
    with pytest.raises(TypeError, match=like("components of a mix must be texts, got 3 ... Write")):
        ts.Mix({3: WINDOWS})  # type: ignore[dict-item]


def test_a_fill_that_is_no_time_is_not_left_out() -> None:
    with pytest.raises(TypeError, match=like("fill= must be one number")):
        ts.column("y", fill=np.datetime64("NaT"))  # type: ignore[arg-type]


def test_names_in_no_order_do_not_name_quantiles() -> None:
    with pytest.raises(TypeError, match=like("names must be in the order ... Write a list.")):
        WINDOWS.to_frame([0], torch.ones(1, 1, 2), {"low", "high"})  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_told() -> None:
    windows = ts.Windows(STASH, spans={"past": ts.During("y", -3, 0, max_rows=2**31 - 1)})
    with pytest.raises(ts.errors.NoMemoryError, match=like("A batch must fit into memory ... fewer windows")):
        windows[np.zeros(10**7, np.int64)]


def test_what_is_no_name_is_in_no_stash() -> None:
    assert "y" in STASH
    number: Any = 3
    assert number not in STASH
    assert "z" not in STASH
    lists: list[Any] = [["y"], slice(0, 5), {}]
    for key in lists:
        with pytest.raises(TypeError, match=like("stash[name] is one column ... got")):
            key in STASH  # noqa: B015
