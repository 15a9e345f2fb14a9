"""Arguments of `ts.column` and `ts.load` that are refused or warned of, each with a remedy."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like, write_parquet


@pytest.mark.parametrize("fill", [[1], 1j, b"a", np.datetime64("2020", "D"), torch.tensor([1, 2])], ids=repr)
def test_a_fill_that_is_no_plain_value_is_refused(fill: Any) -> None:
    begin = re.escape("fill= must be one number, boolean or text, got ")
    with pytest.raises(TypeError, match=rf"\A{begin}.*\. For times, give the integer that the tensor stores\.\Z"):
        ts.column("x", fill=fill)
    plain: list[Any] = [torch.tensor([2]), np.int8(2), True]
    assert [ts.column("x", fill=one).fill for one in plain] == [2, 2, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_a_fill_beyond_all_numbers_is_refused(dtype: torch.dtype) -> None:
    big = 10**400
    message = f"'x' is {dtype}, which cannot hold {big}"
    with pytest.raises(ts.errors.DataError, match=like(message)):
        ts.load({"x": [1.0]}, [ts.column("x", dtype=dtype, fill=big)])
    assert ts.load({"x": [None, 1.0]}, [ts.column("x", fill=float("inf"))])["x"].tolist() == [float("inf"), 1.0]


def test_lone_surrogates_are_refused() -> None:
    for arguments in ({"vocabulary": ["a", "\ud800"]}, {"fill": "\ud800"}):
        (name,) = arguments
        message = f"{name} ... lone surrogate"
        with pytest.raises(ValueError, match=like(message)):
            ts.column("x", **arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": 5}, "in the order of the codes, got {'a': 5}"),
        (np.array([[1, 2]]), "got array([1, 2]) among 1 values"),
        (torch.tensor([[1, 2]]), "got tensor([1, 2]) among 1 values"),
        (
            torch.zeros(2, dtype=torch.int64, device="meta"),
            "vocabulary ... a tensor on the meta device",
        ),
    ],
)
def test_a_vocabulary_that_is_no_list_of_values_is_refused(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=like(message)):
        ts.column("x", vocabulary=given)
    with pytest.raises(TypeError, match=like("fill= ... got a tensor on the meta device, which has none")):
        ts.column("x", fill=torch.zeros(1, device="meta"))  # type: ignore[arg-type]


def test_a_timeout_needs_share_and_a_number() -> None:
    for wrong in ("5", True, -1, float("nan"), [1]):
        with pytest.raises(ValueError, match=like(f"timeout must be ... got {wrong!r}")):
            ts.load({"x": [1]}, share="timeouts", timeout=wrong)  # type: ignore[arg-type]
    message = "timeout ... needs share= or file="
    with pytest.raises(ValueError, match=like(message)):
        ts.load({"x": [1]}, timeout=5)
    assert ts.load({"x": [1]}, share="timeouts", timeout=np.int64(5))["x"].tolist() == [1]  # type: ignore[arg-type]
    ts.shared.remove("timeouts")


# Text that is numbers


def texts(numbers: int, others: int) -> list[str]:
    return [*(f"{k / 4}" for k in range(numbers)), *(f"n/a {k}" for k in range(others))]


@pytest.mark.parametrize(
    ("values", "is_warned"),
    [
        (texts(10, 0), True),
        (texts(9, 1), True),
        (texts(8, 2), False),
        (texts(9, 0), False),  # few labels
        ([f"{k:03}" for k in range(20)], False),
        ([f" -{k}e-3" for k in range(20)], True),
        (["inf", "1_000", "½", *texts(20, 0)], False),
        (["0", "1", "2", "3", "-"], True),  # a mark of missing values
        (["0", "1", "2", "3", "n/a"], True),
        ([f"{k},{k}00" for k in range(1, 11)], True),
        ([f"{k},5" for k in range(10)], True),
        ([f"${k}.50" for k in range(10)], True),
        ([f"{k / 2}%" for k in range(10)], True),
        ([f"{k} kg" for k in range(10)], True),
        ([f"{k}{unit}" for k in range(5) for unit in ("A", "B", "C")], False),  # seats
        ([f"{k}.{k}.2024" for k in range(1, 12)], False),
        ([f"{k}:30" for k in range(12)], False),
        ([f"10.0.0.{k}" for k in range(12)], False),
        ([f"S{k}" for k in range(12)], False),
    ],
)
def test_text_of_which_nine_of_ten_values_are_numbers_is_warned_of(values: list[str], is_warned: bool) -> None:
    message = r"Column 'x' is text, .* most of its distinct values read as numbers\. Load .*pl\.col\('x'\)\.cast"
    for arguments in ({}, {"share": "numbers"}):
        source: dict[str, Any] = {"e": values, "x": [*values[1:], values[0]]}
        if is_warned:
            with pytest.warns(UserWarning, match=message) as caught:
                stash = ts.load(source, ["x", "e"], entity="e", **arguments)  # type: ignore[arg-type]
            assert [warning.filename for warning in caught] == [__file__]  # not of the entity, and not twice
        else:
            stash = ts.load(source, ["x", "e"], entity="e", **arguments)  # type: ignore[arg-type]
        assert stash.about("x").kind == "category"
        ts.load(source, {"x": ts.column("x", vocabulary=values), "h": ts.hashed("x", 9)})
    ts.shared.remove("numbers")


# The entity column with a fill


@pytest.mark.parametrize("entity", [["a", "a", "a", "b"], [7, 7, 7, 8]])
def test_the_entity_column_keeps_its_fill_for_empty_slots(entity: list[Any]) -> None:
    fill = "none" if entity[0] == "a" else -5
    data = {"e": entity, "t": [1, 2, 4, 1], "y": [1.0, 2.0, 3.0, 4.0]}
    stash = ts.load(data, {"e": ts.column("e", fill=fill), "y": "y"}, entity="e", time="t")
    assert stash.about("e").fill == fill
    batch = ts.Windows(stash, 2, 1, gaps="mask")[[0]]
    if fill == -5:
        assert batch["e"].tolist() == [[7, 7, -5]]
    else:
        assert stash.vocabulary("e") == ["a", "b", "none"]
        assert batch["e"].tolist() == [[0, 0, 2]]
        assert stash.about("e").high == 1


# Columns of frames


def test_columns_of_frames_that_arrow_cannot_hold_are_named() -> None:
    sparse = pd.arrays.SparseArray([0.0, 1.0])
    wrong: list[tuple[Any, str]] = [
        (
            pd.DataFrame({"y": [1, 2, 3], "x": [1, "a", 2.5]}),
            "object, which cannot be converted: Could not convert 'a' with type str: tried to convert to int64. "
            "Convert it: pandas.to_numeric(frame['x'], errors='coerce'), or frame['x'].astype(str).",
        ),
        (
            pd.DataFrame({"x": [1 + 2j]}),
            "complex128, which cannot be converted: Unsupported numpy type 15. Load its parts: "
            "numpy.real(frame['x']) and numpy.imag(frame['x']).",
        ),
        (
            pd.DataFrame({"x": sparse, "y": [1, 2]}),
            "Sparse[float64, nan], which cannot be converted: Sparse pandas data (column x) not supported. "
            "Convert it: frame['x'].sparse.to_dense().",
        ),
        (
            pl.DataFrame({"y": [1], "x": pl.Series([1], dtype=pl.Int128)}),
            "Int128, which cannot be converted: Invalid or unsupported format string: '_pli128'. Convert it: "
            "pl.col('x').cast(pl.Int64).",
        ),
    ]
    for frame, rest in wrong:
        with pytest.raises(ts.errors.SchemaError, match=like(rest)):
            ts.load(frame, ["x"])
        with pytest.raises(ts.errors.SchemaError, match=like(rest)):
            ts.load(frame)
    mixed = pd.DataFrame({"x": [1, "a", 2.5]})
    assert ts.load(mixed.assign(x=pd.to_numeric(mixed["x"], errors="coerce")))["x"].tolist()[::2] == [1.0, 2.5]
    assert ts.load(mixed.assign(x=mixed["x"].astype(str))).vocabulary("x") == ["1", "2.5", "a"]
    assert ts.load(pd.DataFrame({"x": pd.Series(sparse).sparse.to_dense()}))["x"].tolist() == [0.0, 1.0]


def test_a_tensor_without_values_is_refused() -> None:
    message = "'x' of the mapping is torch.float32, which cannot be converted: Cannot copy out of meta tensor; no data!"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"x": torch.zeros(3, device="meta")})


@pytest.mark.parametrize(
    ("values", "kind", "remedy"),
    [
        (np.array([1 + 2j]), "complex128", "Load its parts: numpy.real(mapping['x']) and numpy.imag(mapping['x'])."),
        (np.array([2, "b"], object), "object", "Convert it: pandas.to_numeric(mapping['x'], errors='coerce'), or"),
        (5, "an int", "Convert it before loading."),
        ([2**63, 1], "a list", "For integers below 2**64 write np.array(..., np.uint64)."),
    ],
    ids=["complex", "objects", "number", "large"],
)
def test_what_is_no_column_of_one_type_is_told_by_its_type(values: Any, kind: str, remedy: str) -> None:
    message = f"column 'x' of the mapping is {kind}, which cannot be converted: ... {remedy}"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.load({"x": values})
    mapping = {"x": np.array([2, "b"], object)}
    assert ts.load({"x": pd.to_numeric(mapping["x"], errors="coerce")})["x"].tolist()[0] == 2
    assert ts.load({"x": mapping["x"].astype(str)}).vocabulary("x") == ["2", "b"]


# Damage


@pytest.mark.parametrize("names", [["y"], ["x", "y", "z"]], ids=str)
def test_a_column_that_cannot_be_decoded_is_named(names: list[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.random(5000) for name in "xyz"})
    path = write_parquet(tmp_path / "one.parquet", [table])
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)  # in the second column
    path.write_bytes(data)
    message = rf"\A{path}, row group 0 cannot be decoded: column 'y': .*\. Write the file again\.\Z"
    with pytest.raises(ts.errors.SourceError, match=message):
        ts.load(path, names)
    with pytest.raises(ts.errors.SourceError, match=message):
        ts.load(path, ["x"], filter=[("y", ">", 0.5), ("z", ">", 0.5)])
