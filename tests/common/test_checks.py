"""The inside of `common/checks.py`: which values are integers."""

from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.common.checks import at_least, is_integer
from tests.oracle_load import like


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), torch.tensor(3), torch.tensor([3])])
def test_integers_of_any_library_are_taken(value: Any) -> None:
    assert is_integer(value)
    assert at_least(3, value, "count") == 3


@pytest.mark.parametrize(
    "value",
    [True, 3.0, "3", None, np.float32(3), np.array([3.0]), np.array([1, 2]), torch.tensor(3.0), torch.tensor([1, 2])],
)
def test_other_values_are_refused(value: Any) -> None:
    """Arrays and tensors of floats have an `__index__` too."""
    assert not is_integer(value)
    with pytest.raises(ValueError, match=like(f"count ... got {value!r}")):
        at_least(0, value, "count")


def test_a_tensor_without_a_value_is_no_integer() -> None:
    assert not is_integer(torch.zeros(1, dtype=torch.int64, device="meta"))


def test_a_cut_that_is_no_integer_is_refused() -> None:
    windows = ts.Windows(ts.load({"t": [1, 2, 3], "y": [0.0] * 3}, ["y"], time="t"), 1)
    with pytest.raises(ValueError, match=like("A cut is an integer, as the times are; got tensor([1.]).")):
        windows.split(torch.tensor([1.0]))
