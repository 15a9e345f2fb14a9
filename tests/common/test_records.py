"""The inside of `common/records.py`: every array of a record, however deep, and nothing else."""

from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.common.records import arrays_of, each_array, some_of


class Inner(NamedTuple):
    numbers: Any
    label: str = "kept"


class Outer(NamedTuple):
    parts: tuple[Inner, ...]
    named: dict[str, Any]
    listed: list[Any]
    nothing: None = None


def record() -> Outer:
    return Outer((Inner(np.arange(3)), Inner(torch.arange(3) + 10)), {"x": np.arange(3) + 20}, [1, np.arange(3) + 30])


def test_each_array_is_changed_in_order_and_the_rest_stays() -> None:
    count = iter(range(9))
    made = each_array(record(), lambda _: next(count))
    assert made == Outer((Inner(0), Inner(1)), {"x": 2}, [1, 3])
    assert [type(part) for part in made.parts] == [Inner, Inner]


def test_some_rows_of_all_arrays() -> None:
    assert [array.tolist() for array in arrays_of(some_of(record(), slice(1, 3)))] == [
        [1, 2],
        [11, 12],
        [21, 22],
        [31, 32],
    ]
    assert [array.tolist() for array in arrays_of(some_of(record(), np.array([2])))] == [[2], [12], [22], [32]]
