"""The names of columns, of the source and of the stash, and names that it does not have."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import (
    like,
    write_ipc,
    write_parquet,
)


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    files = [write_parquet(tmp_path / "1.parquet", [table]), write_ipc(tmp_path / "1.arrow", [table], None)]
    for source in (table, *files):
        assert [(k, v.tolist()) for k, v in ts.load(source, ["c", "a", "b"]).items()] == [
            ("c", [3]),
            ("a", [1]),
            ("b", [2]),
        ]
        assert ts.load(source, {"p": ["c", "a"], "q": "b"})["p"].tolist() == [[3, 1]]


def test_a_column_whose_name_is_the_beginning_of_another(tmp_path: Path) -> None:
    """Parquet reads a dotted name as a path into a struct, and a name as everything below it."""
    table = pa.table({"x.y": [1], "x": [2], "x.y.z": [3], "s": pa.array([{"x": 4}])})
    path = write_parquet(tmp_path / "one.parquet", [table])
    assert ts.load(path, ["x"])["x"].tolist() == [2]
    stash = ts.load(path, {"dotted": "x.y", "plain": "x", "long": "x.y.z"})
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {"dotted": [1], "plain": [2], "long": [3]}


@pytest.mark.parametrize("wrong", ["columns", "entity", "time"])
def test_an_unknown_column_comes_with_the_nearest_names(wrong: str, tmp_path: Path) -> None:
    table = pa.table({"temp": [1.0], "temperature": [2.0], "origin": ["x"], "hour": [1]})
    path = write_parquet(tmp_path / "one.parquet", [table])
    given_: dict[str, Any] = {"columns": ["temp"], "entity": "origin", "time": "hour"}
    sources = {
        str(path): path,
        "the pyarrow Table": table,
        "the polars frame": pl.DataFrame(table),
        "the pandas frame": table.to_pandas(),
        "the mapping": table.to_pydict(),
        "1 paths": [path],
    }
    for where, source in sources.items():
        near = {"columns": "tmp", "entity": "orign", "time": "hours"}[wrong]
        hint = {"columns": "'temp'", "entity": "'origin'", "time": "'hour'"}[wrong]
        with pytest.raises(ts.errors.ColumnError, match=like(f"{where} has no column '{near}'; did you mean {hint}?")):
            ts.load(source, **given_ | {wrong: ["tmp"] if wrong == "columns" else near})
    with pytest.raises(
        ts.errors.ColumnError,
        match=like("the pyarrow Table has no column 'temperatur'; did you mean 'temperature' or 'temp'?"),
    ):
        ts.load(table, ["temperatur"])
    with pytest.raises(
        KeyError, match=like("the pyarrow Table has no column 'zz'; it has 'temp', 'temperature', 'origin', 'hour'.")
    ):
        ts.load(table, {"x": ["temp", "zz"]})


def test_a_name_of_a_key_is_not_given_to_another_column() -> None:
    source = {"e": ["A", "B"], "t": [1, 2], "d": [0.5, 0.25]}
    assert ts.load(source, ["e", "t", "d"], entity="e", time="t").to_polars().columns == ["e", "t", "d"]
    for name in ("e", "t"):
        message = (
            f"A column has the name of the entity, the time or the known time only if it holds these; {name!r} is "
            "made of 'd'. Give it another name in columns=."
        )
        with pytest.raises(ts.errors.SchemaError, match=f"^{re.escape(message)}$"):
            ts.load(source, {name: "d"}, entity="e", time="t")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            [0],
            "A column must be a name, a list of names, a polars expression or ts.column(...), got 0. Values belong in "
            "the source, and options of a pack in ts.column([...], ...).",
        ),
        ((name for name in "y"), "columns= must be a list of names or a mapping, got a generator."),
        ("y", "columns= must be a list of names or a mapping, got the text 'y'. Write ['y']."),
    ],
)
def test_columns_are_named_by_texts(columns: object, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        ts.load({"y": [1.0]}, columns)  # type: ignore[arg-type]


def test_names_of_a_mapping_are_texts() -> None:
    with pytest.raises(
        ts.errors.SchemaError, match=r"^Column names must be text; the mapping has the int 0\. Rename it\.$"
    ):
        ts.load({0: [1.0]})


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("entity", "\ud800"),
        ("entity", ["e", "\ud800"]),
        ("time", "\ud800"),
        ("known", "\ud800"),
        ("columns", ["\ud800"]),
        ("columns", ["y.\ud800"]),
        ("columns", {"\ud800": "y"}),
        ("columns", {"y": ts.is_valid(["y", "\ud800"])}),
        ("static", ["\ud800"]),
        ("static", {"\ud800": "y"}),
        ("static", (pl.DataFrame({"e": ["a"], "v": [1]}), ["\ud800"])),
    ],
    ids=range(11),
)
def test_a_name_that_is_not_unicode_is_refused_in_every_argument(argument: str, given: Any, tmp_path: Path) -> None:
    rows = pl.DataFrame({"e": ["a"], "t": [1], "y": [1.0]})
    rows.write_csv(tmp_path / "rows.csv")
    for source in (rows, rows.lazy(), rows.to_arrow(), tmp_path / "rows.csv"):
        arguments: dict[str, Any] = {"columns": ["y"], "entity": "e", "time": "t"} | {argument: given}
        with pytest.raises(ts.errors.SchemaError, match=like(f"must be valid Unicode; {argument}= has '")):
            ts.load(source, **arguments)
