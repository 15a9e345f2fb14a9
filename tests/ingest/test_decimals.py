"""Decimals: the nearest float if it keeps their digits, else refused unless a type is named."""

from decimal import Decimal

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.oracle_load import like


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
    message = "9007199254740993 in column 'x' (the pyarrow Table; 1 such value)"
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
