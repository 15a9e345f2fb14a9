"""Missing values: what `fill=` puts in their place, and what may be one."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import (
    exact,
    write_ipc,
    write_parquet,
)


def test_large_integers_survive_nulls_elsewhere(tmp_path: Path) -> None:
    """Through floating point, 2**53 + 1 would lose its last bit."""
    large = [2**53 + 1, None, -(2**53) - 1, 2**63 - 1]
    table = pa.table({"i": large, "u": pa.array([2**64 - 1, 2**63 + 1, None, 2**53 + 1], pa.uint64())})
    columns = {"i": ts.column("i", fill=-7), "u": ts.column("u", fill=9)}
    frame = pl.DataFrame(table)
    for source in (
        table,
        frame,
        write_parquet(tmp_path / "1.parquet", [table]),
        write_ipc(tmp_path / "1.arrow", [table], None),
    ):
        stash = ts.load(source, columns)
        assert stash["i"].tolist() == [2**53 + 1, -7, -(2**53) - 1, 2**63 - 1]
        assert stash["u"].tolist() == [2**64 - 1, 2**63 + 1, 9, 2**53 + 1]


def test_a_fill_stands_for_every_missing_value() -> None:
    table = pa.table(
        {
            "f": pa.array([1.5, None, math.nan], pa.float32()),
            "h": pa.array([1.5, None, math.nan], pa.float16()),
            "i": pa.array([1, None, 3], pa.int8()),
            "b": pa.array([True, None, False]),
            "s": pa.array(["x", None, "(none)"]),
            "t": pa.array([5, None, 7], pa.timestamp("s")),
            "p": pa.array([[1.0, None], [math.nan, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        }
    )
    fills: dict[str, Any] = {"f": -0.5, "h": 0, "i": -128, "b": True, "s": "(none)", "t": 0, "p": 9}
    stash = ts.load(table, {name: ts.column(name, fill=fill) for name, fill in fills.items()})
    assert stash["f"].tolist() == [1.5, -0.5, -0.5]
    assert stash["h"].tolist() == [1.5, 0.0, 0.0]
    assert stash["i"].tolist() == [1, -128, 3]
    assert stash["b"].tolist() == [True, True, False]
    assert [stash.vocabulary("s")[code] for code in stash["s"]] == ["x", "(none)", "(none)"]
    assert stash["t"].tolist() == [5, 0, 7]
    assert stash["p"].tolist() == [[1.0, 9.0], [9.0, 2.0], [3.0, 4.0]]
    counted = {name: (stash.about(name).nulls, stash.about(name).missing) for name in stash}
    assert counted == {"f": (1, 0), "h": (1, 0), "i": (1, 0), "b": (1, 0), "s": (1, 0), "t": (1, 0), "p": (1, 0)}


def test_a_fill_is_a_value_of_what_is_stored_not_of_the_source() -> None:
    narrow = {"x": pa.array([None, 200], pa.uint8())}
    assert ts.load(narrow, {"x": ts.column("x", dtype=torch.int16, fill=-1)})["x"].tolist() == [-1, 200]
    assert ts.load(narrow, {"x": ts.column("x", dtype=torch.float32, fill=0.5)})["x"].tolist() == [0.5, 200.0]
    floating = {"x": np.array([math.nan, 2.0])}
    assert ts.load(floating, {"x": ts.column("x", dtype=torch.int32, fill=-1)})["x"].tolist() == [-1, 2]


def test_nulls_of_integers_become_nan_where_the_column_is_floating() -> None:
    source = {"a": pa.array([1, None]), "b": pa.array([None, 0.5]), "c": pa.array([True, None])}
    stash = ts.load(source, {"a": ts.column("a", dtype=torch.float32), "p": ["a", "b", "c"]})
    assert exact(stash["a"].tolist(), [1.0, math.nan])
    assert exact(stash["p"].tolist(), [[1.0, math.nan, 1.0], [math.nan, 0.5, math.nan]])
    assert stash.about("p").missing == stash.about("p").nulls == 3


@pytest.mark.parametrize(
    ("arrow", "fill"),
    [
        (pa.int8(), 300),
        (pa.int64(), 0.5),
        (pa.int64(), math.nan),
        (pa.uint8(), -1),
        (pa.bool_(), 2),
        (pa.timestamp("s"), 0.5),
        (pa.float16(), 1e6),
    ],
    ids=lambda parameter: str(parameter),
)
def test_a_fill_that_the_column_cannot_hold_is_refused(arrow: pa.DataType, fill: float) -> None:
    with pytest.raises(
        ts.errors.DataError, match=rf"\Afill= must be a value of its column; 'x' is .*, which cannot hold {fill}\.\Z"
    ):
        ts.load({"x": pa.array([None], arrow)}, {"x": ts.column("x", fill=fill)})


def test_a_fill_may_be_a_numpy_number() -> None:
    stash = ts.load({"y": [1.0, None]}, {"y": ts.column("y", fill=np.float32(7))})  # type: ignore[arg-type]
    assert stash["y"].tolist() == [1.0, 7.0]
