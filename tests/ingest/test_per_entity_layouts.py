"""`ts.per_entity` over the rows that a layout makes, for every form that a source has."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.layouts import FORMS

Y, TWO = pl.col("y"), pl.col("two")


@pytest.mark.parametrize("form", FORMS)
def test_series_in_rows(form: str, tmp_path: Path) -> None:
    """Also of a column that another expression computes, for an entity in several rows, whose times are in disorder."""
    table = pa.table(
        {"id": ["a", "b", "a"], "t": [[3, 1], [1, 2], [2, 4]], "y": [[3.0, 1.0], [10.0, 20.0], [2.0, 4.0]]}
    )
    columns: dict[str, Any] = {"two": Y * 2, "lag": ts.per_entity(Y.shift(1)), "step": ts.per_entity(TWO.diff())}
    stash = ts.load(FORMS[form](table, tmp_path), columns, layout="lists", entity="id", time="t")
    assert stash["lag"].nan_to_num(-1).tolist() == [-1.0, 1.0, 2.0, 3.0, -1.0, 10.0]
    assert stash["step"].nan_to_num(-1).tolist() == [-1.0, 2.0, 2.0, 2.0, -1.0, 20.0]


@pytest.mark.parametrize("form", FORMS)
def test_series_in_columns(form: str, tmp_path: Path) -> None:
    source = FORMS[form](pa.table({"t": [1, 2], "a": [1.0, 2.0], "b": [5.0, 8.0]}), tmp_path)
    columns: dict[str, Any] = {"y": ["a", "b"], "two": Y * 2, "step": ts.per_entity(TWO.diff())}
    stash = ts.load(source, columns, layout="wide", entity="e", time="t")
    assert stash["step"].nan_to_num(-1).tolist() == [-1.0, 2.0, -1.0, 6.0]
