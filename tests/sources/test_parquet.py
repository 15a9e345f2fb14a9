"""The inside of `sources/parquet.py`: minima and maxima of Parquet files, values of the column or nothing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import torch

import tensorstash as ts
from tensorstash.sources.file import here
from tensorstash.sources.parquet import RowGroups, _bounds
from tensorstash.sources.read import Range
from tests.oracle_load import write_parquet


def halves(*values: float | None) -> pa.Array:
    return pa.array([None if value is None else np.float16(value) for value in values], pa.float16())


def test_half_precision(tmp_path: Path) -> None:
    tables = [pa.table({"h": halves(1.5, -2, 3), "y": pa.array([0.25, 7, 1], pa.float32())})]
    tables.append(pa.table({"h": halves(None, 0.5, 8), "y": pa.array([0.5, None, 1], pa.float32())}))
    path = write_parquet(tmp_path / "one.parquet", tables)
    assert ts.plan(path).ranges == {"h": Range(1, -2.0, 8.0), "y": Range(1, 0.25, 7.0)}
    lines = str(ts.plan(path, {"pack": ["h", "y"]})).splitlines()
    assert lines[2].split()[-4:-1] == ["2", "-2", "8"]
    assert "cannot hold" in str(ts.plan(path, {"n": ts.column("h", dtype=torch.uint8)}))


@pytest.mark.parametrize(("low", "high"), [(math.nan, 1.0), (0.0, math.nan), (math.nan, math.nan)])
def test_nan_says_nothing(low: float, high: float) -> None:
    """Old writers put it into statistics."""
    assert _bounds(low, high, pa.float64()) == (None, None)
    assert _bounds(np.float16(low).tobytes(), np.float16(high).tobytes(), pa.float16()) == (None, None)


def test_the_leaf_of_a_name_with_a_dot_is_checked_too(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "d.e": [3], "d": [4]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    groups = RowGroups(pads.ParquetFileFormat().make_fragment(str(path), here()))
    assert [sorted(groups._leaves([name])) for name in ("a", "d.e", "d")] == [[0, 1], [2], [2, 3]]


def test_types_without_a_range(tmp_path: Path) -> None:
    table = pa.table({"b": pa.array([b"ab", b"cd"], pa.binary(2)), "y": [1, 2]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    assert ts.plan(path, ["y"]).ranges == {"y": Range(0, 1, 2)}


@pytest.mark.parametrize(
    ("low", "high", "arrow", "expected"),
    [
        (b"\x00\xc1", b"\x00B", pa.float16(), (-2.5, 3.0)),
        (b"\x00~", b"\x00B", pa.float16(), (None, None)),
        (1.0, math.nan, pa.float64(), (None, None)),
        (math.nan, 1.0, pa.float32(), (None, None)),
        (-math.inf, math.inf, pa.float32(), (-math.inf, math.inf)),
        ("a", "b", pa.string(), ("a", "b")),
    ],
)
def test_a_range_with_nan_is_no_range(low: Any, high: Any, arrow: pa.DataType, expected: tuple[Any, Any]) -> None:
    assert _bounds(low, high, arrow) == expected
