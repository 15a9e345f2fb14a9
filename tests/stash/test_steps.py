"""The inside of `stash/steps.py`: counts of steps beside a loop over pairs of rows."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorstash.stash import steps
from tensorstash.stash.steps import count_steps


def slow_steps(times: list[int], last: set[int], every: int) -> Counter[int]:
    """Pair by pair, without those that begin with the last row of an entity; of a sample, every n-th block of 256."""
    pairs = [row for row in range(len(times) - 1) if row not in last]
    return Counter(times[row + 1] - times[row] for row in pairs if row // 256 % every == 0)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 1 << 32))
def test_the_steps_of_every_nth_block_are_those_of_a_loop(sizes: list[int], every: int, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, 4, sum(sizes)).cumsum()
    last = np.cumsum(sizes)[:-1] - 1
    assert count_steps(times, last, every) == slow_steps(times.tolist(), {*last.tolist()}, every)


def test_the_sample_is_small_whatever_the_number_of_rows() -> None:
    for rows in (steps._SAMPLE * 2, 1_000_000, 5_000_001):
        every = (rows - 1) // steps._SAMPLE
        counted = count_steps(np.arange(rows), np.zeros(0, np.int64), every)
        assert steps._SAMPLE <= counted[1] <= 2 * steps._SAMPLE
