"""filter=: numbers of any type are compared exactly, or the comparison is refused."""

import math
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tensorstash as ts
from tests.oracle_load import like, write_parquet
from tests.sources.filters import COMPARE, satisfies


@pytest.mark.parametrize("as_file", [False, True])
def test_half_precision_is_compared(as_file: bool, tmp_path: Path) -> None:
    table = pa.table({"h": pa.array(np.array([0.5, 1.5, np.nan, 1.0], np.float16)), "k": [0, 1, 2, 3]})
    source = str(write_parquet(tmp_path / "h.parquet", [table])) if as_file else table
    kept = {(">", 0.75): [1, 3], ("in", (1.0, 0.5)): [0, 3], ("not in", (1.0,)): [0, 1, 2], ("==", 1.5): [1]}
    for (comparison, value), rows in kept.items():
        assert ts.load(source, ["k"], filter=[("h", comparison, value)])["k"].tolist() == rows


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
def test_floats_are_compared_with_integers_that_a_float_holds(dtype: type[pl.DataType]) -> None:
    """Arrow itself refuses integers beyond 2**24 or 2**53, even if a float holds them."""
    frame = pl.DataFrame({"f": pl.Series([1.0, 2.0**24, 2.0**60, None], dtype=dtype), "row": range(4)})
    kept = {("==", 2**60): [2], ("in", (1, 2**60)): [0, 2], ("in", (0.5, 2**24)): [1], (">", 2**24 + 1): [2]}
    for source in (frame, frame.lazy()):
        for (operator_, value), rows in kept.items():
            assert ts.load(source, ["row"], filter=[("f", operator_, value)])["row"].tolist() == rows
        for large in (2**53 + 1, np.int64(2**53 + 1), np.uint64(2**53 + 1)):
            for operator_, value in (("==", large), ("in", (large,)), ("not in", [0.5, large])):
                with pytest.raises(
                    ValueError,
                    match=like("a float can hold ... 'f' with 9007199254740993. Write ... 9007199254740992.0."),
                ):
                    ts.load(source, ["row"], filter=[("f", operator_, value)])


BEYOND = {
    pa.int64(): [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**60)],
    pa.uint64(): [2**24 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 2**11, 2**64 - 1],
    pa.uint32(): [2**24 + 1, 2**32 - 1],
    pa.int8(): [-128, 127],
}
LARGE = (2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**60, np.uint64(2**63))
FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0**24, 2.0**53, -(2.0**60), 1e18, 2.0**63, -(2.0**63), 2.0**64, 1e300, math.inf)


@pytest.mark.parametrize("dtype", BEYOND, ids=str)
def test_integers_are_compared_with_numbers_exactly(dtype: pa.DataType, tmp_path: Path) -> None:
    """As Python compares them. Arrow itself rounds the column, or compares it as int64, in which some have no place."""
    values = [0, 1, 2, 100, None, *BEYOND[dtype]]
    table = pa.table({"n": pa.array(values, dtype), "row": range(len(values))})
    file = write_parquet(tmp_path / "n.parquet", [table.slice(k, 2) for k in range(0, len(values), 2)])
    sources = (table, file, pl.DataFrame(table).lazy())
    numbers = (*FLOATS, -math.inf, math.nan, 1, -1, -5, 2**53, np.float32(0.5), np.int8(2), *LARGE)
    for k, value in enumerate(numbers):
        terms: list[tuple[str, Any]] = [
            *((name, value) for name in COMPARE),
            ("in", [value, 1]),
            ("not in", [value, 1]),
            ("in", {value}),
            ("not in", (None, value, *range(-80, 0))),  # so many that they are looked up in a table
        ]
        for name, than in terms:
            expected = [row for row, n in enumerate(values) if satisfies({"n": n}, ("n", name, than))]
            rows = ts.load(sources[k % 3], ["row"], filter=[("n", name, than)])["row"].tolist()
            assert rows == expected, (name, than, k % 3)


def test_lists_of_integers_of_every_kind_are_compared_exactly() -> None:
    values = [1, 2**63, 2**64 - 1, 2**53 + 1]
    table = pa.table({"n": pa.array(values, pa.uint64()), "row": range(4)})
    given: list[Any] = [range(2**63, 2**63 + 2), np.array([2**63], np.uint64), pl.Series([2**63], dtype=pl.UInt64)]
    for members in (*given, [Decimal(2**63), 5], [Decimal("1.5"), 2**63, -1]):
        assert ts.load(table, ["row"], filter=[("n", "in", members)])["row"].tolist() == [1]
        assert ts.load(table, ["row"], filter=[("n", "not in", members)])["row"].tolist() == [0, 2, 3]
    decimals = table.set_column(0, "n", table["n"].cast(pa.decimal128(20)))
    assert ts.load(decimals, ["row"], filter=[("n", "in", [1, 2**64 - 1])])["row"].tolist() == [0, 2]
    floats = {"f": [1.0, 2.0**63, 1.5], "row": [0, 1, 2]}
    assert ts.load(floats, ["row"], filter=[("f", "in", [1, 2**63])])["row"].tolist() == [0, 1]
    assert ts.load(floats, ["row"], filter=[("f", "in", [Decimal("1.5"), 1])])["row"].tolist() == [0, 2]


MIXED: list[tuple[list[Any], str]] = [
    ([Decimal("1.50"), 2.0], "Decimal, float"),
    (["2024-01-01", datetime(2024, 1, 2)], "datetime, str"),
    ([None, "a", 1], "int, str"),
    ([True, 2], "bool, int"),
]


@pytest.mark.parametrize(("values", "types"), MIXED, ids=lambda part: str(part))
def test_a_list_of_several_types_is_refused_as_such(values: list[Any], types: str) -> None:
    for operator_ in ("in", "not in"):
        with pytest.raises(TypeError, match=like(f"Write values of one type ... of the list are {types}.") + "$"):
            ts.load({"x": [1.0, 2.0]}, filter=[("x", operator_, values)])
    with pytest.raises(TypeError, match=like("To compare with several values, write ('x', 'in', [...]).") + "$"):
        ts.load({"x": [1.0, 2.0]}, filter=[("x", "==", values)])


NUMBERS: dict[pa.DataType, list[float | None]] = {
    pa.int64(): [0, 1, 2**24 + 1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63), None],
    pa.float32(): [0.5, 1.0, 2.0**24, 2.0**60, None],
    pa.float64(): [0.5, 1.0, 2.0**24 + 1, 2.0**60, None],
    pa.float16(): [0.5, 1.0, 2048.0, None],
}


@pytest.mark.parametrize("arrow", NUMBERS, ids=str)
@pytest.mark.parametrize("form", ["field of a struct", "dictionary"])
def test_numbers_inside_structs_and_dictionaries_are_compared_exactly(
    form: str, arrow: pa.DataType, tmp_path: Path
) -> None:
    """As in plain columns, integers beside floats and floats beside integers."""
    numbers = NUMBERS[arrow]
    column = pa.array(
        [None if n is None else np.float16(n) for n in numbers] if arrow == pa.float16() else numbers, arrow
    )
    if form == "dictionary":
        places = [None if n is None else place for place, n in enumerate(numbers)]
        name, wrapped = "n", pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), column.drop_null())
    else:
        name, wrapped = "s.n", pa.StructArray.from_arrays([column], ["n"])
    table = pa.table({name[0]: wrapped, "row": range(len(numbers))})
    sources: list[Any] = [table]
    if arrow != pa.float16():  # which Parquet lists as bytes
        sources.append(write_parquet(tmp_path / "n.parquet", [table.slice(0, 2), table.slice(2)]))
    values = (1, 2**24, 2**24 + 2, 0.5, 1.0, 2.0**24, 2.0**53) if arrow == pa.int64() else (1, 0.5, 2**60, 2**24 + 1)
    for source in sources:
        for value in values:
            for op, holds in COMPARE.items():
                expected = [row for row, n in enumerate(numbers) if n is not None and holds(n, value)]
                assert ts.load(source, ["row"], filter=[(name, op, value)])["row"].tolist() == expected, (op, value)
            expected = [row for row, n in enumerate(numbers) if n is not None and n in (value, 1)]
            assert ts.load(source, ["row"], filter=[(name, "in", [value, 1])])["row"].tolist() == expected
        if arrow == pa.float64():
            with pytest.raises(ValueError, match=like(f"a float can hold ... {name!r} with 9007199254740993")):
                ts.load(source, ["row"], filter=[(name, ">", 2**53 + 1)])


@pytest.mark.parametrize("values", [[4, True, 3.5], [1.5, True, 4], [True, 4], [None, False, 2]])
def test_truth_values_beside_numbers_are_refused(values: list[Any]) -> None:
    for column in ([1, 4], [1.0, 4.0], [True, False]):
        with pytest.raises(TypeError, match=like("filter= compares a column with numbers, texts, dates and times")):
            ts.load({"x": column}, filter=[("x", "in", values)])


@pytest.mark.parametrize("count", [1, 100])  # a few are compared one by one, many looked up in a table
@pytest.mark.parametrize(("column", "value"), [("flag", 5), ("whole", True), ("real", True)])
def test_truth_values_are_no_numbers_however_many_there_are(column: str, value: Any, count: int) -> None:
    frame = pl.DataFrame({"flag": [True, False], "whole": [1, 0], "real": [1.0, 0.0]})
    for several in ([value] * count, np.array([value] * count)):
        for operator in ("in", "not in"):
            with pytest.raises(ts.errors.SchemaError, match=like(f"filter= ... {column!r} ... of its type")):
                ts.load(frame, ["whole"], filter=[(column, operator, several)])


def test_arrays_of_objects_are_compared_as_lists() -> None:
    source = {"n": [1, -1, 3], "f": [1.0, 0.5, -1.0]}
    missing = pd.Series([2**64, pd.NA, math.nan, pd.NaT, -1], dtype=object)
    for members in (np.array([2**64, -1, None], object), pl.Series([2**64, -1], dtype=pl.Object), missing):
        assert ts.load(source, ["n"], filter=[("n", "in", members)])["n"].tolist() == [-1]
    for mixed in ([0.5, True], [True, 2], [np.True_, 1], [np.True_, 1, 0.5]):
        for values in (mixed, np.array(mixed, object)):
            with pytest.raises(TypeError, match=like("filter= compares ... 'f'")):
                ts.load(source, ["n"], filter=[("f", "in", values)])
    with pytest.raises(ts.errors.SchemaError, match=like("filter= must be true or false ... 'f'")):
        ts.load(source, ["n"], filter=[("f", "in", np.array([[0.5]], object))])


DIGITS = ["6.1582448596780", "0.1", "0.3", "-12345.678901", "1e20", "9007199254740993.5"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_decimals_beside_floats_are_their_nearest_floats(dtype: Any) -> None:
    """Arrow itself misses the nearest float of about every seventh decimal, and rounds those of long lists."""
    decimals = [Decimal(text) for text in DIGITS]
    column = np.array([*map(float, decimals)], dtype)
    source = {"f": column, "row": np.arange(len(column))}
    others = [Decimal(n) + Decimal("0.7") for n in range(-80, 0)]
    for decimal in decimals:
        expected = np.flatnonzero(column.astype(np.float64) == float(decimal)).tolist()
        for operator_, value in (
            ("==", decimal),
            ("in", [decimal]),
            ("in", [decimal, *others]),
            ("in", pa.array([decimal, *others])),
        ):
            assert ts.load(source, ["row"], filter=[("f", operator_, value)])["row"].tolist() == expected
    for operator_, value in (("<", Decimal(2**53 + 1)), ("in", [Decimal(2**53 + 1)]), ("in", [1, 2**63 + 1])):
        with pytest.raises(ValueError, match=like("numbers that a float can hold ... 'f'")):
            ts.load(source, ["row"], filter=[("f", operator_, value)])


@pytest.mark.parametrize("kind", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(9, 2), pa.decimal256(40, 2)])
def test_numbers_beyond_the_digits_of_a_column_equal_none_of_it(kind: Any) -> None:
    """Arrow's cast to 32 bits overflows in silence."""
    table = pa.table({"d": pa.array([Decimal("0.00"), Decimal("1.50"), Decimal("-3.00")], kind)})
    for number in (2**63, 2**40, 10**41, Decimal(2**40), 2.0**70):
        for op, rows in (("==", 0), ("<", 3), (">=", 0), ("!=", 3)):
            assert ts.load(table, filter=[("d", op, number)]).rows == rows, (op, number)
        assert ts.load(table, filter=[("d", "in", [number, 7])]).rows == 0


def test_decimals_are_compared_with_numbers_digit_by_digit(tmp_path: Path) -> None:
    """A float is the decimal that it is printed as. Arrow itself rounds the column, or has not enough digits."""
    values = [*map(Decimal, DIGITS), Decimal(2**53 + 1), Decimal("0.0001"), Decimal(2), None]
    table = pa.table({"d": pa.array(values, pa.decimal128(38, 13)), "row": range(len(values))})
    file = write_parquet(tmp_path / "d.parquet", [table.slice(k, 2) for k in range(0, len(values), 2)])
    numbers: list[Any] = [
        6.158244859678,
        0.1,
        np.float32(0.5),
        2,
        np.int8(2),
        2**53 + 1,
        2**53,
        2.0**53,
        1e20,
        -1e300,
        1e-4,
    ]
    numbers += [Decimal("0.10000000000000000001"), Decimal("0.1"), Decimal(10**30), 1e-300, math.inf, 0.0]
    for number in numbers:
        exact = Decimal(repr(float(number)) if isinstance(number, (float, np.floating)) else str(number))
        for source in (table, file):
            for op in (*COMPARE, "in", "not in"):
                lists = ([number], [number, *[type(number)(n) for n in range(-90, -20)]])
                for value in lists if op in ("in", "not in") else (number,):
                    term = ("d", op, [exact] if isinstance(value, list) else exact)
                    expected = [row for row, cell in enumerate(values) if satisfies({"d": cell}, term)]
                    assert ts.load(source, ["row"], filter=[("d", op, value)])["row"].tolist() == expected, (op, number)
    for op, rows in (("==", []), ("<", []), ("!=", [*range(len(values) - 1)])):
        assert ts.load(file, ["row"], filter=[("d", op, math.nan)])["row"].tolist() == rows
    with pytest.raises(ts.errors.SchemaError, match=like("filter= ... 'd' is decimal")):
        ts.load(table, ["row"], filter=[("d", "==", True)])


def test_half_floats_and_scalars_of_arrow_are_numbers() -> None:
    halves = np.array([0.5, 0.1, 2.0], np.float16)
    table = pa.table({"h": halves, "u": pa.array([1, 2, 3], pa.uint64()), "row": [0, 1, 2]})
    half, several = np.float16(0.1), np.array([0.1], np.float16)
    for term in (("h", "==", half), ("h", "in", [half]), ("h", "in", several), ("h", "in", pa.array(several))):
        assert ts.load(table, ["row"], filter=[term])["row"].tolist() == [1]
    for term in (("h", "==", pa.scalar(half, pa.float16())), ("u", "==", pa.scalar(2)), ("u", "<=", pa.scalar(2.5))):
        assert ts.load(table, ["row"], filter=[term])["row"].tolist()[-1] == 1


def test_integers_beyond_the_type_of_a_column_are_compared_as_polars_compares_them() -> None:
    frame = pl.DataFrame({"i8": pl.Series([1, -128, None], dtype=pl.Int8), "row": range(3)})
    i8 = pl.col("i8")
    for condition in (i8.ne_missing(-129), i8.eq_missing(2**70), i8 != 300, i8.is_in([300]), i8 > -129):
        for source in (frame, frame.lazy()):
            expected = frame.filter(condition)["row"].to_list()
            assert ts.load(source, ["row"], filter=condition)["row"].tolist() == expected
