"""The inside of `native/guide.py`: the first row from a time on, beside a loop over rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.native.guide import first_rows


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(-20, 20), max_size=12), max_size=5), st.integers(-25, 25))
def test_bisect_finds_the_first_row_from_a_time_on(entities: list[list[int]], moment: int) -> None:
    offsets = np.cumsum([0, *map(len, entities)])
    times = np.array([time for entity in entities for time in sorted(entity)], np.int64)
    first = [offset + sum(time < moment for time in entity) for offset, entity in zip(offsets.tolist(), entities)]
    assert first_rows(times, offsets[:-1], offsets[1:], np.full(len(offsets) - 1, moment)).tolist() == first
