"""Columns of lists: one length, or the file and row of the list that has another."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like, write_parquet


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=6), st.booleans())
def test_lists_of_one_length_are_a_tensor_and_others_are_refused(lists: list[list[int]], reverse: bool) -> None:
    table = pa.table({"x": pa.array(lists, pa.list_(pa.int64())), "y": range(len(lists))})
    if reverse:
        table = table.take([*range(len(lists))][::-1])
        lists = lists[::-1]
    size = next((len(one) for one in lists if one), None)
    if size is None:
        with pytest.raises(
            ts.errors.SchemaError, match=r"decides the length of lists; column 'x' of the pyarrow Table is"
        ):
            ts.load(table, ["x"])
    elif (odd := next((row for row, one in enumerate(lists) if len(one) != size), None)) is not None:
        message = f"one of {len(lists[odd])} in row {odd} of the pyarrow Table, and the first one has {size}"
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(table, ["x"])
    else:
        assert ts.load(table, ["x"])["x"].tolist() == lists


def test_the_error_names_file_and_row_and_a_filter_leaves_rows_out(tmp_path: Path) -> None:
    table = pa.table({"x": [[9], [1, 2], [3, 4], [5]], "y": range(4)})
    path = write_parquet(tmp_path / "one.parquet", [table[:2], table[2:]])
    message = f"one of 1 in row 3 ({path}, row group 1) of {path}, and the first one has 2"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(path, ["x"], filter=[("y", ">", 0)])
    assert ts.load(path, ["x"], filter=[("y", "in", [1, 2])])["x"].tolist() == [[1, 2], [3, 4]]
    assert ts.load(path, {"x": pl.col("x").list.len()})["x"].tolist() == [1, 2, 2, 1]


def test_missing_items_are_filled_and_missing_lists_refused() -> None:
    items = pa.table({"x": pa.array([[1, None], [3, 4]])})
    assert ts.load(items, {"x": ts.column("x", fill=0)})["x"].tolist() == [[1, 0], [3, 4]]
    assert ts.load(items, {"ok": ts.is_valid("x")})["ok"].tolist() == [[True, False], [True, True]]
    message = "column 'x' has 1 null list in the pyarrow Table"
    for array in (
        pa.array([None, [1, 2], [3, 4]]),
        pa.array([[1, 2], None, [3, 4]], pa.list_view(pa.int64())),
        pa.array([b"ab", None], pa.binary(2)),
    ):
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(pa.table({"x": array}), ["x"])
