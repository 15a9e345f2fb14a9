"""Test of the inside, `columns/arrays.py`: Arrow arrays of numpy's values and back, against pyarrow's own lists."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorstash.columns.arrays import filled, nulls, numbers, of_numbers, of_texts

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()]


@pytest.mark.parametrize("arrow", TYPES)
@given(st.lists(st.one_of(st.none(), st.integers(0, 100))), st.integers(0, 20), st.integers(0, 20))
def test_values_and_nulls_of_a_slice(arrow: pa.DataType, values: list[Any], start: int, rows: int) -> None:
    typed = [value if value is None or arrow != pa.bool_() else bool(value % 2) for value in values]
    array = pa.array(typed, arrow).slice(min(start, len(typed)), rows)
    kept = array.to_pylist()
    holes = nulls(array)
    assert (holes is None) == (None not in kept)
    assert holes is None or holes.tolist() == [value is None for value in kept]
    assert filled(array, 1).tolist() == [1 if value is None else value for value in kept]
    assert filled(array, 1).dtype == numbers(array).dtype == np.dtype(arrow.to_pandas_dtype())
    assert [value for value, known in zip(numbers(array).tolist(), kept) if known is not None] == [
        value for value in kept if value is not None
    ]


@pytest.mark.parametrize("arrow", TYPES[:-1])
@given(st.lists(st.integers(0, 100)), st.integers(1, 3))
def test_numbers_become_arrow_and_come_back(arrow: pa.DataType, values: list[int], step: int) -> None:
    array = np.array(values, arrow.to_pandas_dtype())[::step]
    made = of_numbers(array)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (arrow, array.tolist())
    assert numbers(made).tolist() == array.tolist()


def test_numbers_are_not_copied() -> None:
    array = np.arange(9)
    assert np.shares_memory(numbers(of_numbers(array)[2:]), array)


@given(st.lists(st.booleans()))
def test_flags_become_arrow(flags: list[bool]) -> None:
    made = of_numbers(np.array(flags, np.bool_))
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (pa.bool_(), flags)


@given(st.lists(st.text()))
def test_texts_become_arrow(texts: list[str]) -> None:
    made = of_texts(texts)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (pa.large_string(), texts)
