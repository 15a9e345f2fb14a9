"""`ts.is_valid`: where the source has a value, for every type."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import KINDS, Kind, arrow_array, arrow_field, flat, like, value, write_parquet


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("parquet", [False, True], ids=["table", "parquet"])
def test_a_mask_says_where_the_source_has_a_value(kind: Kind, parquet: bool, tmp_path: Path) -> None:
    """For every type, in an order that is not the source's, beside the column and without it."""
    rows = 24
    cells: list[Any] = [value(kind, 1, row) for row in range(rows)]
    for row in (0, 7, 8, 23):
        cells[row] = _with_a_hole(cells[row])
    if kind.floating:
        cells[9] = [math.nan] * len(cells[9]) if kind.shape else math.nan
    array = arrow_array(kind, cells)
    schema = pa.schema([arrow_field("c", kind), pa.field("t", pa.int64())])
    table = pa.table([array, np.arange(rows)[::-1]], schema=schema)
    source: Any = table
    if parquet:
        if not kind.parquet:
            return
        source = write_parquet(tmp_path / "one.parquet", [table.slice(0, 8), table.slice(8)])
    fill: Any = "" if kind.kind == "category" else 1
    stash = ts.load(source, {"c": ts.column("c", fill=fill), "ok": ts.is_valid("c")}, time="t")
    alone = ts.load(source, {"ok": ts.is_valid("c")}, time="t")
    expected = [
        [not (x is None or (isinstance(x, float) and math.isnan(x))) for x in flat([cell])] for cell in reversed(cells)
    ]
    for held in (stash, alone):
        assert held["ok"].dtype == torch.bool
        assert tuple(held["ok"].shape) == (rows, *kind.shape)
        assert held["ok"].reshape(rows, -1).tolist() == expected
    assert list(stash["ok"].shape) == list(stash["c"].shape)


def _with_a_hole(cell: Any) -> Any:
    """A null, or a list with one as its last item."""
    return [*cell[:-1], _with_a_hole(cell[-1])] if isinstance(cell, list) else None


def test_a_null_inside_a_dictionary_is_no_value() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    number = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), pa.array([1.5, None, math.nan]))
    stash = ts.load(pa.table({"s": text, "n": number}), {"s": ts.is_valid("s"), "n": ts.is_valid("n")})
    assert stash["s"].tolist() == [True, False, False, False]
    assert stash["n"].tolist() == [True, False, False, False]


def test_a_file_without_any_text_has_no_value(tmp_path: Path) -> None:
    """Its column has the null type there."""
    for k, values in enumerate((["a", None], [None, None])):
        write_parquet(tmp_path / f"{k}.parquet", [pa.table({"c": values, "y": [0, 1]})])
    columns = {"c": "c", "ok": ts.is_valid("c"), "hashed": ts.hashed("c", 1)}
    stash = ts.load(tmp_path, columns)
    assert stash["ok"].tolist() == [True, False, False, False]
    assert stash["c"].tolist() == stash["hashed"].tolist() == [0, -1, -1, -1]
    assert ts.load(tmp_path, columns, filter=[("c", "not in", ["b"])]).rows == 1


def test_masks_are_packed_and_static_and_refused_in_lists() -> None:
    source = {"e": ["x", "x", "y"], "a": [1.0, math.nan, 2.0], "b": pa.array([1, 2, None]), "c": pa.array([5, 5, None])}
    stash = ts.load(source, {"ok": ts.is_valid(["a", "b"])}, entity="e", static={"known": ts.is_valid("c")})
    assert stash["ok"].tolist() == [[True, True], [False, True], [True, False]]
    assert stash.static["known"].tolist() == [True, False]
    assert (stash.about("ok").missing, stash.about("ok").low, stash.about("ok").high) == (0, False, True)
    message = "in a list needs a name, got ['a']. ... {'name': ts.is_valid(...)}."
    with pytest.raises(ValueError, match=like(message)):
        ts.load(source, ["a", ts.is_valid("a")])
    message = "'m' is made of ['l', 'l']"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"l": np.zeros((2, 3))}, {"m": ts.is_valid(["l", "l"])})
    with pytest.raises(ts.errors.ColumnError, match=like("no column 'zz'; it has 'y'")):
        ts.load({"y": [1]}, {"m": ts.is_valid("zz")})


def test_a_null_under_a_mask_keeps_large_integers_exact(tmp_path: Path) -> None:
    table = pa.table({"i": [2**53 + 1, None, -(2**63), 2**63 - 1]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    stash = ts.load(path, {"i": ts.column("i", fill=0), "ok": ts.is_valid("i")})
    assert stash["i"].tolist() == [2**53 + 1, 0, -(2**63), 2**63 - 1]
    assert stash["ok"].tolist() == [True, False, True, True]
