"""The inside of `stash/steps.py`: counts of steps beside a loop over pairs of rows, and what is inferred from them."""

from collections import Counter
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorstash.common.clock import Clock
from tensorstash.stash import steps
from tensorstash.stash.steps import count_steps, infer

SIZES = st.lists(st.integers(1, 700), min_size=1, max_size=8)


def slow_steps(times: list[int], last: set[int]) -> Counter[int]:
    """Pair by pair, without those that begin with the last row of an entity."""
    pairs = [row for row in range(len(times) - 1) if row not in last]
    return Counter(times[row + 1] - times[row] for row in pairs)


@given(SIZES, st.sampled_from([7, 256, 1 << 18]), st.integers(0, 1 << 32))
def test_steps_are_counted_as_by_a_loop(sizes: list[int], block: int, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, 4, sum(sizes)).cumsum()
    last = np.cumsum(sizes)[:-1] - 1
    with mock.patch.object(steps, "_BLOCK", block):
        assert count_steps(times, last) == slow_steps(times.tolist(), {*last.tolist()})


@given(SIZES.filter(lambda of: max(of) > 1), st.sampled_from([1, 7, 256]), st.integers(1, 3), st.integers(0, 1 << 32))
def test_the_first_rows_do_not_decide_the_frequency(sizes: list[int], block: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    change = rng.integers(0, sum(sizes) + 1)  # other steps before it than behind it
    given = np.concatenate([rng.integers(0, most, change), rng.integers(0, 5, sum(sizes) - change)])
    times, last = given.cumsum(), np.cumsum(sizes)[:-1] - 1
    counted = slow_steps(times.tolist(), {*last.tolist()})
    del counted[0]
    expected = min(counted, key=lambda step: (-counted[step], step), default=1)
    with mock.patch.object(steps, "_BLOCK", block):
        assert infer(times, last, Clock(None, None), None)[0].count == expected
