"""Fields of structs: a dotted path stands wherever the name of a source column stands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tensorstash as ts
from tests.oracle_load import like, write_ipc, write_parquet

ROWS = 12
WINDS = [{"speed": k / 2, "from": {"degrees": k, "name": f"n{k % 2}"}} for k in range(ROWS)]


def _as_table(table: pa.Table, _: Path) -> Any:
    return table


def _as_parquet(table: pa.Table, path: Path) -> Any:
    return write_parquet(path / "one.parquet", [table[:5], table[5:]])


def _as_ipc(table: pa.Table, path: Path) -> Any:
    return write_ipc(path / "one.arrow", [table[:5], table[5:]], None)


def _as_polars(table: pa.Table, _: Path) -> Any:
    return pl.DataFrame(table)


@pytest.mark.parametrize("make", [_as_table, _as_parquet, _as_ipc, _as_polars], ids=lambda make: make.__name__)
def test_a_dotted_path_stands_wherever_a_source_name_stands(
    make: Callable[[pa.Table, Path], Any], tmp_path: Path
) -> None:
    winds: list[Any] = [*WINDS]
    winds[3] = None
    source = make(pa.table({"wind": winds, "t": np.arange(ROWS)[::-1]}), tmp_path)
    columns: dict[str, Any] = {
        "speed": "wind.speed",
        "double": pl.col("wind.from.degrees") * 2.0,
        "known": ts.is_valid("wind.from.name"),
        "pack": ["wind.speed", "t"],
        "hash": ts.hashed("wind.from.name", 8),
    }
    stash = ts.load(source, columns)
    found = stash["speed"].tolist()
    assert found[3] != found[3]
    assert found[:3] + found[4:] == [one["speed"] for one in winds if one]
    assert stash["known"].tolist() == [one is not None for one in winds]
    assert stash["pack"][4:].tolist() == [[k / 2, ROWS - 1 - k] for k in range(4, ROWS)]
    assert stash["double"][4:].tolist() == [2.0 * k for k in range(4, ROWS)]
    for condition in ([("wind.from.degrees", ">=", 4)], pc.field("wind.from.degrees") >= 4,
                      pc.field("wind", "from", "degrees") >= 4):  # fmt: skip
        for named in ({"speed": "wind.speed", "d": "wind.from.degrees"}, {"t": "t"}):
            some = ts.load(
                source, named, entity="wind.from.name", time="wind.from.degrees", filter=condition,
                static={"first": "wind.from.name"},
            )  # fmt: skip
            assert some.entities == ["n0", "n1"]
            assert some.time is not None
            assert some.time.tolist() == [4, 6, 8, 10, 5, 7, 9, 11]
            assert some.static["first"].tolist() == [0, 1]
    planned = ts.plan(source, {"speed": "wind.speed"})
    assert planned.skipped == ("t",)


def test_all_columns_beside_a_key_that_is_a_field() -> None:
    table = pa.table({"k": [{"id": "a"}, {"id": "b"}], "y": [1, 2]})
    assert ts.load(table, ["y"], entity="k.id").entities == ["a", "b"]
    message = "column 'k' is struct<id: string> ... 'k.id'"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(table, entity="k.id")


def test_paths_are_told_from_columns_and_from_mistakes() -> None:
    table = pa.table({"a.b": [1], "a": [{"b": 2, "c.d": 3}]})
    assert ts.load(table, {"x": "a.b", "y": "a.c.d"})["x"].tolist() == [1]
    assert ts.load(table, {"x": "a.b", "y": "a.c.d"})["y"].tolist() == [3]
    message = "no column 'a.e'; did you mean 'a.b' or 'a.c.d'"
    with pytest.raises(ts.errors.ColumnError, match=like(message)):
        ts.load(table, {"x": "a.e"})
    twice = pa.table({"a": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["b", "b"])})
    message = "'a' of the pyarrow Table has two 'b'"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(twice, {"x": "a.b"})


def test_a_field_that_one_file_lacks_is_a_difference_where_it_is_read(tmp_path: Path) -> None:
    """As a column is; it is none where only other fields of its column are read."""
    for name, wind in (("a", {"speed": 1.0, "from": {"degrees": 2}}), ("b", {"speed": 3.0, "from": {"name": "n"}})):
        write_parquet(tmp_path / f"{name}.parquet", [pa.table({"t": [1], "wind": [wind]})])
    lacking = "All files of a source need the same columns ... b.parquet has no column 'wind.from.degrees'."
    for columns in ({"x": "wind.from.degrees"}, {"x": pl.col("wind.from.degrees") + 1}):
        with pytest.raises(ts.errors.SourceError, match=like(lacking)):
            ts.load(tmp_path, columns)
    for condition in (
        [("wind.from.degrees", ">", 0)],
        pl.col("wind.from.degrees") > 0,
        pc.field("wind.from.degrees") > 0,
    ):
        with pytest.raises(ts.errors.SourceError, match=like(lacking)):
            ts.load(tmp_path, ["t"], filter=condition)
    assert ts.load(tmp_path, {"speed": "wind.speed"})["speed"].tolist() == [1.0, 3.0]
    write_parquet(tmp_path / "b.parquet", [pa.table({"t": [1], "wind": [{"speed": 3.0}], "wind.gust": [4.0]})])
    write_parquet(
        tmp_path / "a.parquet", [pa.table({"t": [1], "wind": [{"speed": 1.0, "gust": 0.0}], "wind.gust": [2.0]})]
    )
    assert ts.load(tmp_path, {"gust": "wind.gust"})["gust"].tolist() == [2.0, 4.0]  # columns take precedence
