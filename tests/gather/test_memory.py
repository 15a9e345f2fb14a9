"""The inside of `gather/memory.py`: windows by the memory that they are of."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorstash.gather.memory import by_component


@given(st.lists(st.sampled_from([0, 1, 2, 65_535, 65_536, 65_537, 131_072]), max_size=20))
def test_each_memory_comes_once_with_its_windows_in_order(numbers: list[int]) -> None:
    """Packs of `ts.each` may be more than a number of 16 bits counts."""
    found = {
        number: np.arange(len(numbers))[which].tolist() for number, which in by_component(np.array(numbers, np.int32))
    }
    assert found == {number: [k for k, own in enumerate(numbers) if own == number] for number in {*numbers}}
    assert [*found] == sorted(found)
