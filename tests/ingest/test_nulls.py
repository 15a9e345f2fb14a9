"""Nulls where there is no missing value: integers, lists, entities and times."""

from pathlib import Path

import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import (
    Case,
    Form,
    Held,
    kind_of,
    like,
    source_of,
    write_parquet,
)

FORMS_OF_FILES: tuple[Form, ...] = ("file", "list", "glob", "directory", "ipc", "lz4", "zstd")


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1, None, None]), "i"),
        (pa.array([True, None, None]), "b"),
        (pa.array([1, None, None], pa.timestamp("ms")), "t"),
    ],
    ids=["integer", "boolean", "timestamp"],
)
def test_a_null_where_there_is_no_missing_value(array: pa.Array, kind: str, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "one.parquet", [pa.table({kind: array.slice(0, 1)}), pa.table({kind: array})])
    for source, place in ((path, f"{path}, row group 1"), ({kind: array}, "the mapping")):
        keep = "Store" if kind == "t" else f"Keep nulls as NaN, ts.column('{kind}', dtype=torch.float32), or store"
        message = f"column '{kind}' has 2 nulls in {place}. {keep} a value that counts as data: ts.column('{kind}', "
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(source)


def test_a_null_list_is_refused() -> None:
    message = "column 'x' has 1 null list in the pyarrow Table"
    for column in (
        pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2)),
        pa.array([[[1.0], [2.0]], [[3.0], None]], pa.list_(pa.list_(pa.float64(), 1), 2)),
    ):
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(pa.table({"x": column}))


@pytest.mark.parametrize("form", FORMS_OF_FILES)
def test_a_null_in_an_entity_or_time_column_is_found(form: Form, tmp_path: Path) -> None:
    text, ticks = kind_of("string"), kind_of("int64")
    names, times = ["a", "b", "a", "b", "a"], [1, 2, 3, 4, 5]
    for column, entity, time in (
        ("entity_", Held(text, [*names[:3], None, None]), Held(ticks, times)),
        ("time_", Held(text, names), Held(ticks, [*times[:3], None, None])),
    ):
        case = Case({"y": Held(ticks, times)}, entity, time, [0, 2, 5])
        directory = tmp_path / column
        directory.mkdir()
        message = (
            rf"\AEvery row needs an entity and a time, .*; column '{column}' of .* is null in row 3( \({directory}/.+, "
            r"(row group|record batch) \d\))? \(the first such\)\. Fill or drop such rows"
        )
        with pytest.raises(ts.errors.DataError, match=message):
            case.load(source_of(form, case, directory))


def test_a_null_inside_a_dictionary_of_entities_is_found() -> None:
    entity = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([None, "a"]))
    message = "column 'e' of the pyarrow Table is null in row 1"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(pa.table({"e": entity, "y": [1, 2, 3]}), ["y"], entity="e")
