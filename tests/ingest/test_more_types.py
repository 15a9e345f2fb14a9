"""Decimals, bytes, lists, struct fields and wrapped types, through every source, against plain Python."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like, write_ipc, write_parquet

ROWS = 12


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A column as Arrow has it, and the rows that a stash must hold."""

    name: str
    array: pa.Array
    rows: list[Any]
    dtype: torch.dtype
    parquet: bool = True


def _numbers(row: int) -> list[float]:
    return [row, row + 0.5, -row]


def _ends(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, ROWS], pa.int32()), values)


def _dictionary(values: pa.Array, index: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([k % 2 for k in range(ROWS)], index), values)


def _lists(arrow: pa.DataType) -> pa.Array:
    return pa.array([_numbers(k) for k in range(ROWS)], arrow)


def _all() -> list[Wrapped]:
    every = range(ROWS)
    bytes_ = [bytes([k, 255 - k, 7]) for k in every]
    cents = [Decimal(k * 35 - 70) / 100 for k in every]
    runs = [0 if k < 2 else 1 if k < 5 else 2 for k in every]
    f64, u8, i64 = torch.float64, torch.uint8, torch.int64
    floats, numbers = [float(value) for value in cents], [_numbers(k) for k in every]
    found = [
        Wrapped("decimal128", pa.array(cents, pa.decimal128(9, 2)), floats, f64),
        Wrapped("decimal_of_38", pa.array(cents, pa.decimal128(38, 18)), floats, f64),
        Wrapped("decimal256", pa.array(cents, pa.decimal256(76, 30)), floats, f64),
        Wrapped("negative_scale", pa.array([Decimal(k * 1000) for k in every], pa.decimal128(5, -3)),
                [k * 1000.0 for k in every], f64, parquet=False),
        Wrapped("bytes", pa.array(bytes_, pa.binary(3)), [[*one] for one in bytes_], u8),
        Wrapped("list", _lists(pa.list_(pa.float32())), numbers, torch.float32),
        Wrapped("large_list", _lists(pa.large_list(pa.float64())), numbers, f64),
        Wrapped("list_view", _lists(pa.list_view(pa.float64())), numbers, f64, parquet=False),
        Wrapped("large_list_view", _lists(pa.large_list_view(pa.float16())), numbers, torch.float16, parquet=False),
        Wrapped("fixed_list", _lists(pa.list_(pa.float64(), 3)), numbers, f64),
        Wrapped("list_of_decimals", pa.array([[value, Decimal(1)] for value in cents], pa.list_(pa.decimal128(9, 2))),
                [[value, 1.0] for value in floats], f64),
        Wrapped("list_of_lists", pa.array([[[k, 1, 2], [3, 4, -k]] for k in every]),
                [[[k, 1, 2], [3, 4, -k]] for k in every], i64),
        Wrapped("list_of_bytes", pa.array([[one, b"abc"] for one in bytes_], pa.list_(pa.binary(3))),
                [[[*one], [*b"abc"]] for one in bytes_], u8),
        Wrapped("run_ends", _ends(pa.array([1.5, 2.5, -1.0])), [[1.5, 2.5, -1.0][k] for k in runs], f64, False),
        Wrapped("run_ends_of_bytes", _ends(pa.array([b"ab", b"cd", b"ef"], pa.binary(2))),
                [[*[b"ab", b"cd", b"ef"][k]] for k in runs], u8, False),
        Wrapped("run_ends_of_decimals", _ends(pa.array(cents[:3], pa.decimal128(9, 2))), [floats[k] for k in runs],
                f64, False),
        Wrapped("dictionary_of_decimals", _dictionary(pa.array(cents[:2], pa.decimal128(9, 2)), pa.uint8()),
                [floats[k % 2] for k in every], f64, False),
        Wrapped("dictionary_of_bytes", _dictionary(pa.array([b"ab", b"cd"], pa.binary(2)), pa.int64()),
                [[*[b"ab", b"cd"][k % 2]] for k in every], u8, False),
        Wrapped("dictionary_of_lists", _dictionary(pa.array([[1, 2], [3, 4]]), pa.int16()),
                [[[1, 2], [3, 4]][k % 2] for k in every], i64, False),
    ]  # fmt: skip
    if hasattr(pa, "uuid"):  # from pyarrow 18 on
        ids = [uuid.UUID(int=k << 100 | k) for k in every]
        storage = pa.array([one.bytes for one in ids], pa.binary(16))
        tensor = pa.fixed_shape_tensor(pa.int64(), [2, 3])
        flat = pa.array([[*range(k, k + 6)] for k in every], pa.list_(pa.int64(), 6))
        found += [
            Wrapped("uuid", pa.ExtensionArray.from_storage(pa.uuid(), storage), [[*one.bytes] for one in ids], u8),
            Wrapped("bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([k % 3 for k in every], pa.int8())),
                    [k % 3 > 0 for k in every], torch.bool),
            Wrapped("tensor", pa.ExtensionArray.from_storage(tensor, flat),
                    [[[*range(k, k + 3)], [*range(k + 3, k + 6)]] for k in every], i64),
        ]  # fmt: skip
    return found


WRAPPED = _all()


def _sources(array: pa.Array, path: Path, parquet: bool) -> list[Any]:
    """The rows as a table, as a part of a longer one, and in files of several pieces."""
    table = pa.table({"x": array, "t": np.arange(ROWS)[::-1]})
    pieces = [table.slice(0, 5), table.slice(5)]
    found = [table, pa.concat_tables([table, table, table]).combine_chunks().slice(ROWS, ROWS)]
    if not pa.types.is_dictionary(array.type):
        found.append(write_ipc(path / "one.arrow", pieces, None))
    return [*found, write_parquet(path / "one.parquet", pieces)] if parquet else found


@pytest.mark.parametrize("one", WRAPPED, ids=lambda one: str(one.name))
def test_values_are_those_of_plain_python(one: Wrapped, tmp_path: Path) -> None:
    """In the order of the source and in another one, all rows and some."""
    for source in _sources(one.array, tmp_path, one.parquet):
        plain = ts.load(source, ["x"])["x"]
        assert plain.dtype == one.dtype
        assert plain.tolist() == one.rows
        kept = ts.load(source, ["x"], time="t", filter=[("t", "<", 9)])["x"]
        assert kept.tolist() == one.rows[:2:-1]
        (planned,) = ts.plan(source, ["x"]).columns
        assert (planned.dtype, planned.shape) == (plain.dtype, tuple(plain.shape[1:]))
        ok = ts.load(source, {"ok": ts.is_valid("x")})["ok"]
        assert ok.shape == plain.shape
        assert bool(ok.all())


@pytest.mark.parametrize("name", ["decimal128", "bytes", "list", "run_ends"])
def test_shared_stashes_are_attached_by_the_same_call(name: str, shm: Path, tmp_path: Path) -> None:
    one = next(one for one in WRAPPED if one.name == name)
    for source in _sources(one.array, tmp_path, one.parquet):
        first, second = (ts.load(source, ["x"], share="x") for _ in range(2))
        assert first["x"].tolist() == one.rows
        assert second["x"].data_ptr() != first["x"].data_ptr()
        assert second["x"].tolist() == one.rows
        assert len(ts.shared.list()["label"]) >= 1
    assert shm.exists()


def test_text_in_wrapped_types_is_text(tmp_path: Path) -> None:
    texts = ["a", "b", "c"]
    for arrow in (pa.string(), pa.string_view(), pa.large_string()):
        source = pa.table({"s": _ends(pa.array(texts, arrow)), "y": range(ROWS)})
        stash = ts.load(source, ["y", "s"], entity="s")
        assert stash.entities == texts
        assert stash["s"].tolist() == [0] * 2 + [1] * 3 + [2] * 7
        assert ts.load(source, ["y"], filter=[("s", "=", "b")])["y"].tolist() == [2, 3, 4]
    if hasattr(pa, "json_"):  # from pyarrow 19 on
        array = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "[]"]))
        path = write_parquet(tmp_path / "one.parquet", [pa.table({"j": array})])
        for source in (pa.table({"j": array}), path):
            stash = ts.load(source)
            assert (stash["j"].tolist(), stash.vocabulary("j")) == ([1, -1, 0], ["[]", '{"a": 1}'])


# Decimals


@settings(max_examples=150)
@given(
    digits=st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(10**16), 10**16), min_size=1, max_size=5),
    scale=st.integers(0, 38),
)
def test_a_decimal_is_the_nearest_float_or_refused(digits: list[int], scale: int) -> None:
    for precision, make in ((38, pa.decimal128), (76, pa.decimal256), (15, pa.decimal128)):
        numbers = [Decimal(f"{number}e-{scale}") for number in digits if abs(number) < 10**precision]
        if scale > precision:
            continue
        table = pa.table({"x": pa.array([*numbers, None], make(precision, scale))})
        nearest = [float(number) for number in numbers]
        asked = ts.load(table, {"x": ts.column("x", dtype=torch.float64, fill=-1.0)})["x"]
        assert asked.tolist() == [*nearest, -1.0]
        if any(Decimal(repr(near)) != number for near, number in zip(nearest, numbers)):
            with pytest.raises(ts.errors.DataError, match=r"\ADecimals are stored as float64 if they keep their"):
                ts.load(table)
        else:
            assert ts.load(table)["x"].tolist()[:-1] == nearest


def test_digits_are_given_up_only_by_who_names_a_type() -> None:
    large = Decimal(2**53 + 1)
    table = pa.table({"x": pa.array([Decimal(5), large], pa.decimal128(20, 0)), "f": [0.5, 1.5]})
    message = "9007199254740993 in column 'x' (the pyarrow Table; 1 such values)"
    for columns in (["x"], {"p": ["f", "x"]}):
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(table, columns)
    assert ts.load(table, {"x": ts.column("x", dtype=torch.int64)})["x"].tolist() == [5, 2**53 + 1]
    assert ts.load(table, ["x"], dtype=torch.float64)["x"].tolist() == [5.0, 2.0**53]
    assert ts.load(table, {"p": ["f", "x"]}, dtype=torch.float64)["p"].tolist() == [[0.5, 5.0], [1.5, 2.0**53]]
    cents = pa.table({"x": pa.array([Decimal("1.50")], pa.decimal128(20, 2))})
    message = "column 'x' (the pyarrow Table) has a decimal that is no integer"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load(cents, {"x": ts.column("x", dtype=torch.int64)})


# Lists


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
    message = "column 'x' has 1 null lists in the pyarrow Table"
    for array in (
        pa.array([None, [1, 2], [3, 4]]),
        pa.array([[1, 2], None, [3, 4]], pa.list_view(pa.int64())),
        pa.array([b"ab", None], pa.binary(2)),
    ):
        with pytest.raises(ts.errors.DataError, match=like(message)):
            ts.load(pa.table({"x": array}), ["x"])


# Fields of structs

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
    assert "read, not kept: wind" in repr(planned)


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
