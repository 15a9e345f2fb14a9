"""Columns: which types a stash holds and how, packs, names, and the choices of `ts.column`."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import DATES, KINDS, NUMBERS, STAMPS, TEXTS, Kind, arrow_field, kind_of, like, looked_at

RULE = 'reserved; a column is named {!r}. ... columns={{"new_name": {!r}}}'


def planned(table: Any, columns: Any = None, **options: Any) -> Any:
    """The one column of a plan."""
    (column,) = ts.plan(table, columns, **options).columns
    return column


def empty(**types: pa.DataType) -> pa.Table:
    """A table without rows."""
    return pa.schema(types).empty_table()


# Types


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_every_type_has_one_place(kind: Kind) -> None:
    column = planned(pa.schema([arrow_field("x", kind)]).empty_table())
    found = (column.dtype, column.kind, column.shape, column.unit, column.zone)
    assert found == (kind.dtype, kind.kind, kind.shape, kind.unit, kind.zone)
    assert (column.name, column.members, column.fill) == ("x", ("x",), None)


def conversion(arrow: pa.DataType) -> str:
    """The remedy for a type that a stash cannot hold; `test_conversions_that_errors_name_work` tries them."""
    if pa.types.is_null(arrow):
        return "load pl.col('x').cast(pl.Float64)"
    if pa.types.is_fixed_size_list(arrow):
        return "load one of its items: pl.col('x').arr.get(0)"
    if pa.types.is_list(arrow):
        return "load one of its items: pl.col('x').list.get(0)"
    if pa.types.is_struct(arrow):
        return "load its fields by their paths, such as 'x.a'"
    if pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return "load pl.col('x').cast(pl.String), if it is text in UTF-8"
    return "convert it before loading"


def test_conversions_that_errors_name_work() -> None:
    x = pl.col("x")
    conversions: list[tuple[pa.Array, pl.Expr, Any]] = [
        (pa.array([["u", "v"], ["w"]]), x.list.get(0), [0, 1]),
        (pa.array([["u", "v"], ["w", "x"]], pa.list_(pa.string(), 2)), x.arr.get(0), [0, 1]),
        (pa.array([{"a": 1}, {"a": 2}]), pl.col("x.a"), [1, 2]),
        (pa.array([b"u", b"v"]), x.cast(pl.String), [0, 1]),
        (pa.array(["1.5", "n/a"]), x.cast(pl.Float64, strict=False).fill_null(-1), [1.5, -1.0]),
    ]
    for array, expression, stored in conversions:
        table = pa.table({"x": array})
        assert ts.load(table, {"x": expression})["x"].tolist() == stored
    assert ts.load(pa.table({"x": pa.nulls(2)}), {"x": x.cast(pl.Float64)})["x"].isnan().all()
    seconds = pl.DataFrame({"t": [0.25, 2.5], "y": [1, 2]})
    times = seconds.with_columns((pl.col("t") * 1000).round().cast(pl.Datetime("ms")))
    assert ts.load(times, ["y"], time="t").time.tolist() == [250, 2500]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "arrow",
    [
        pa.null(),
        pa.binary(),
        pa.large_binary(),
        pa.list_(pa.string()),
        pa.list_(pa.string(), 2),
        pa.list_(pa.timestamp("s"), 2),
        pa.list_(pa.int8(), 0),
        pa.struct({"a": pa.int8()}),
        pa.map_(pa.string(), pa.int8()),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.binary()),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
    ids=str,
)
def test_a_type_that_a_stash_cannot_hold_is_refused(arrow: pa.DataType) -> None:
    has_values = pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow)
    shown = arrow.value_type if has_values else arrow
    message = f"column 'x' is {shown}"
    table = empty(y=pa.int8(), x=arrow)
    for call in (ts.load, looked_at):
        with pytest.raises(ts.errors.SchemaError, match=like(message)):
            call(table)
        assert issubclass(ts.errors.SchemaError, TypeError)
    assert list(ts.load(table, ["y"])) == ["y"]


@pytest.mark.parametrize("kind", [*STAMPS, *DATES, *[k for k in NUMBERS if "int" in k.name]], ids=lambda k: str(k.name))
def test_times_are_timestamps_dates_or_integers(kind: Kind) -> None:
    time = ts.plan(empty(t=kind.arrow, y=pa.int8()), time="t").choice.time
    assert time is not None
    assert (time.dtype, time.unit, time.zone, time.members) == (torch.int64, kind.unit, kind.zone, ("t",))


@pytest.mark.parametrize(
    "arrow",
    [
        pa.float64(),
        pa.decimal128(9, 2),
        pa.bool_(),
        pa.duration("s"),
        pa.time32("s"),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.int64()),
    ],
    ids=str,
)
def test_other_times_are_refused(arrow: pa.DataType) -> None:
    message = f"time= ... 't' is {arrow} ... Convert it before loading."
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(empty(t=arrow, y=pa.int8()), time="t")


@pytest.mark.parametrize("arrow", [pa.string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_text_without_a_value_is_no_time(arrow: pa.DataType) -> None:
    remedy = ", with polars: frame.with_columns(pl.col('t').str.to_datetime())"
    with pytest.raises(ts.errors.SchemaError, match=like(f"'t' ... has none: there are no rows ... {remedy}")):
        ts.load(empty(t=arrow, y=pa.int8()), time="t")


@pytest.mark.parametrize(
    "kind", [*TEXTS, kind_of("uint8"), kind_of("int64"), kind_of("dictionary_of_int64")], ids=lambda k: str(k.name)
)
def test_entities_are_texts_or_integers(kind: Kind) -> None:
    entity = ts.plan(empty(e=kind.arrow, y=pa.int8()), entity="e").choice.entity
    assert entity is not None
    assert (entity.kind, entity.members) == ("category", ("e",))


@pytest.mark.parametrize(
    "arrow", [pa.float32(), pa.bool_(), pa.timestamp("s"), pa.list_(pa.string(), 1), pa.binary()], ids=str
)
def test_other_entities_are_refused(arrow: pa.DataType) -> None:
    message = f"entity= ... 'e' is {arrow}"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(empty(e=arrow, y=pa.int8()), entity="e")


# The choice of columns


def test_without_columns_all_but_the_keys_are_loaded() -> None:
    table = empty(a=pa.int8(), e=pa.string(), b=pa.float32(), t=pa.int64())
    assert list(ts.load(table, entity="e", time="t")) == ["a", "b"]
    assert list(ts.load(table)) == ["a", "e", "b", "t"]
    assert list(ts.load(table, ["t", "e"], entity="e", time="t")) == ["t", "e"]


def test_the_forms_of_columns_mean_the_same() -> None:
    table = pa.table({"a": [1], "b": [2]})
    forms: list[Any] = [["b"], ("b",), [ts.column("b")], {"b": "b"}, {"b": ts.column("b")}]
    for columns in forms:
        stash = ts.load(table, columns)
        assert (list(stash), stash["b"].tolist()) == (["b"], [2])
    packs: list[Any] = [{"p": ["b", "a"]}, {"p": ("b", "a")}, {"p": ts.column(["b", "a"])}]
    for columns in packs:
        assert ts.load(table, columns)["p"].tolist() == [[2, 1]]


def test_a_source_column_may_be_used_several_times() -> None:
    columns: Any = {"one": "a", "two": ts.column("a", dtype=torch.float16), "pack": ["a", "a"]}
    stash = ts.load({"a": [1, 2]}, columns)
    assert {name: tensor.tolist() for name, tensor in stash.items()} == {
        "one": [1, 2],
        "two": [1.0, 2.0],
        "pack": [[1, 1], [2, 2]],
    }


def test_a_text_instead_of_a_list_is_refused() -> None:
    message = "columns= ... got the text 'temp'"
    with pytest.raises(TypeError, match=like(message)):
        ts.load({"temp": [1.0]}, "temp")


def test_no_column_at_all_is_refused() -> None:
    for source, columns, where in (({"a": [1]}, [], "the mapping"), (pa.table({}), None, "the pyarrow Table")):
        message = f"none of {where} was chosen"
        with pytest.raises(ValueError, match=like(message)):
            ts.load(source, columns)


def test_a_name_that_comes_twice_is_refused() -> None:
    message = "'a' more than once"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"a": [1], "b": [2]}, ["a", "b", "a"])


def test_a_source_column_that_stands_twice_is_refused_where_it_is_used(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    path = tmp_path / "twice.parquet"
    pq.write_table(table, path)
    for open_source, where in (
        (lambda: table, "the pyarrow Table"),
        (lambda: path, str(path)),
        (table.to_reader, "the pyarrow RecordBatchReader"),
    ):
        assert ts.load(open_source(), ["b"])["b"].tolist() == [3]
        uses: list[dict[str, Any]] = [{"columns": ["a", "b"]}, {"columns": ["b"], "filter": pc.field("a") > 0}]
        for use in uses:
            with pytest.raises(ts.errors.SchemaError, match=like(f"{where} has 2 columns 'a'")):
                ts.load(open_source(), **use)


@pytest.mark.parametrize("name", ["valid", "window", "entity", "anchor", "reset", "a.b", ".", "__x", "__", ""])
def test_reserved_names_are_refused(name: str) -> None:
    for columns in (None, [name]):
        with pytest.raises(ts.errors.SchemaError, match=like(RULE.format(name, name))):
            ts.load({name: [1], "y": [2]}, columns)
    assert ts.load({name: [1]}, {"mine": name})["mine"].tolist() == [1]
    # as keys they are never a column of a batch
    assert ts.load({name: [1], "y": [2]}, entity=name, time=name)["y"].tolist() == [2]


def test_a_reserved_name_of_a_mapping_comes_with_its_source_in_the_remedy() -> None:
    with pytest.raises(ts.errors.SchemaError, match=like(RULE.format("valid", "temp"))):
        ts.load({"temp": [1]}, {"valid": "temp"})


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def test_a_column_with_the_name_of_a_key_is_that_key() -> None:
    """In a series and in a frame it would stand in the other's place."""
    source = {"t": [2, 1], "e": ["a", "b"], "x": [5, 6]}
    message = "name of the entity, the time or ... {!r} is made of {!r}"
    with pytest.raises(ts.errors.SchemaError, match=like(message.format("t", "x"))):
        ts.load(source, {"t": "x"}, time="t")
    with pytest.raises(ts.errors.SchemaError, match=like(message.format("e", "t"))):
        ts.load(source, {"e": "t"}, entity="e")
    assert ts.load(source, ["t", "x"], time="t").series(None).keys() == {"t", "x"}


def test_names_are_texts() -> None:
    for source, where in (({1: [1.0]}, "the mapping"), (pd.DataFrame({1: [1.0]}), "the pandas frame")):
        with pytest.raises(ts.errors.SchemaError, match=like(f"{where} has the int 1")):
            ts.load(source)
    message = "A column must be a name ... got 1"
    wrong: Any
    for wrong in ([1], {"x": 1}):
        with pytest.raises(TypeError, match=like(message)):
            ts.load({"a": [1]}, wrong)
    wrong = {1: "a"}
    with pytest.raises(TypeError, match=r"text.*\b1\b"):
        ts.load({"a": [1]}, wrong)


def test_a_pandas_frame_with_a_name_that_stands_twice_is_refused() -> None:
    message = "the pandas frame has 2 columns 'a'"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@settings(max_examples=30)
@given(names=st.lists(ANY_TEXT, min_size=1, max_size=5, unique=True))
@example(names=['say "x"\n', "\\", "{}", "0" * 8, "valid "])
@example(names=["風" * 2000])
@example(names=[f"{k:04}" + "é" * 40 for k in range(300)])
@example(names=["x" * 100_000])
def test_any_other_name_goes_all_the_way(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    reserved = ("valid", "window", "entity", "anchor", "reset")
    names = [name for name in names if name not in reserved and "." not in name and name[:2] != "__"] or ["y"]
    source = {name: [f"{k}", None] for k, name in enumerate(names)}
    stash = ts.load(source)
    path = tmp_path_factory.mktemp("saved") / "stash.safetensors"
    stash.save(path)
    for read in (stash, ts.open(path)):
        assert list(read) == list(source)
        for k, name in enumerate(source):
            assert (read[name].tolist(), read.vocabulary(name)) == ([0, -1], [f"{k}"])
            assert read.about(name).members == (name,)


# Packs


@pytest.mark.parametrize(
    ("members", "dtype"),
    [
        ("bool bool", torch.bool),
        ("bool uint8", torch.uint8),
        ("int8 uint8", torch.int16),
        ("int32 uint32", torch.int64),
        ("int64 uint64", torch.float64),
        ("uint16 uint64", torch.uint64),
        ("bool float16", torch.float16),
        ("float16 int16", torch.float32),
        ("int32 float32", torch.float64),
        ("float16 float32 float32", torch.float32),
        ("float32 float64", torch.float64),
        ("int8", torch.int8),
    ],
)
def test_a_pack_has_the_dtype_that_holds_all_members(members: str, dtype: torch.dtype) -> None:
    kinds = [kind_of(name) for name in members.split()]
    table = empty(**{f"c{k}": kind.arrow for k, kind in enumerate(kinds)})
    columns = {"p": list(table.column_names)}
    column = planned(table, columns)
    assert (column.dtype, column.shape, column.members) == (dtype, (len(kinds),), tuple(table.column_names))
    floating = any(kind.floating for kind in kinds)
    assert planned(table, columns, dtype=torch.bfloat16).dtype == (torch.bfloat16 if floating else dtype)


def test_a_pack_keeps_every_value_or_is_refused() -> None:
    source = {"a": np.array([2**53, 1]), "b": np.array([2**63, 2], np.uint64)}
    assert ts.load(source, {"p": ["a", "b"]})["p"].tolist() == [[2.0**53, 2.0**63], [1.0, 2.0]]
    source["a"][0] += 1
    message = "9007199254740993 in column 'a' (the mapping; 1 such value) does not fit into torch.float64"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(source, {"p": ["a", "b"]})


def test_a_pack_has_one_fill_for_all_members() -> None:
    source = {"a": pa.array([1, None]), "b": pa.array([None, 4])}
    assert ts.load(source, {"p": ts.column(["a", "b"], fill=-1)})["p"].tolist() == [[1, -1], [-1, 4]]


@pytest.mark.parametrize("member", ["string", "timestamp_s_None", "list_of_float32", "bfloat16", "duration_s"])
def test_a_pack_of_anything_but_plain_numbers_is_refused(member: str) -> None:
    table = pa.schema([pa.field("a", pa.int8()), arrow_field("odd", kind_of(member))]).empty_table()
    message = "its member 'odd' of 'p' is not one"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(table, {"p": ["a", "odd"]})


def test_a_pack_of_nothing_is_refused() -> None:
    message = "A pack has at ... 'p' has none"
    with pytest.raises(ValueError, match=like(message)):
        ts.load({"a": [1]}, {"p": []})


def test_a_pack_without_a_name_is_refused() -> None:
    message = "A pack or a mask in a list needs a name, got ['a', 'b']"
    with pytest.raises(ValueError, match=like(message)):
        ts.load({"a": [1], "b": [2]}, [ts.column(["a", "b"])])


# dtype= and fill=


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64], ids=str)
def test_a_dtype_for_all_that_is_not_floating_is_refused(dtype: torch.dtype) -> None:
    message = f"dtype= ... got {dtype}"
    with pytest.raises(ValueError, match=like(message)):
        ts.load({"a": [1.0]}, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.qint8], ids=str)
def test_a_dtype_that_a_stash_cannot_hold_is_refused(dtype: torch.dtype) -> None:
    held = (
        "torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, "
        "torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64"
    )
    message = f"{held} ... column 'x' asks for {dtype}"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"a": [1.0]}, {"x": ts.column("a", dtype=dtype)})


@pytest.mark.parametrize(
    ("member", "kind"), [("string", "category"), ("timestamp_s_None", "timestamp"), ("date32", "date")]
)
def test_a_dtype_for_what_is_no_number_is_refused(member: str, kind: str) -> None:
    message = f"column 'x' is a {kind}"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load(empty(x=kind_of(member).arrow), [ts.column("x", dtype=torch.float32)])
    assert planned(empty(x=kind_of(member).arrow), dtype=torch.float32).dtype == kind_of(member).dtype


@pytest.mark.parametrize(
    ("member", "kind", "fill"),
    [("float32", "torch.float32", "0"), ("string", "a category", 0), ("date32", "a date", "2020-01-01")],
)
def test_a_fill_of_the_wrong_kind_is_refused(member: str, kind: str, fill: Any) -> None:
    message = f"'x' is {kind}, which cannot hold {fill!r}"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(empty(x=kind_of(member).arrow), [ts.column("x", fill=fill)])


def test_a_column_spec_is_a_value() -> None:
    assert ts.column(["a", "b"], dtype=torch.float16, fill=0) == ts.column(("a", "b"), dtype=torch.float16, fill=0)
    assert hash(ts.column("a")) == hash(ts.column("a"))
    assert ts.column("a") != ts.column(["a"])


def test_a_dtype_is_one_of_torch() -> None:
    for wrong in ("float32", np.float32, float):
        message = like(f"dtype= ... got {wrong!r}")
        with pytest.raises(TypeError, match=message):
            ts.load({"a": [1.0]}, dtype=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=message):
            ts.column("a", dtype=wrong)  # type: ignore[arg-type]
