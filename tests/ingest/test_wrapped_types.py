"""Types that Arrow builds of others: decimals, bytes, lists, runs, dictionaries, extensions; beside plain Python."""

import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import write_ipc, write_parquet

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
    array = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "[]"]))
    path = write_parquet(tmp_path / "one.parquet", [pa.table({"j": array})])
    for source in (pa.table({"j": array}), path):
        stash = ts.load(source)
        assert (stash["j"].tolist(), stash.vocabulary("j")) == ([1, -1, 0], ["[]", '{"a": 1}'])
