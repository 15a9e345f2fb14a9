"""The inside of `transforms/packing.py`: the rows of best fit, beside a loop over rows for every window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.transforms.packing import best_fit
from tests.transforms.test_pack import kernel, slow_best_fit  # noqa: F401  a fixture


@pytest.mark.usefixtures("kernel")
@given(st.lists(st.integers(0, 130), max_size=60), st.integers(130, 400))
@settings(max_examples=60, suppress_health_check=[])
def test_windows_go_where_the_least_room_is_left(sizes: list[int], length: int) -> None:
    row, begin, rows = best_fit(np.array(sizes, np.int64), length)
    assert (row.tolist(), begin.tolist(), rows) == slow_best_fit(sizes, length)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("low", [1, 64, 512])
def test_mixed_lengths_fill_rows_almost_completely(low: int) -> None:
    """1,024 windows: within 5 % of the least number of rows that could hold their slots."""
    for seed in range(20):
        sizes = np.random.default_rng(seed).integers(low, 2049, 1024)
        _, _, rows = best_fit(sizes, 2048)
        assert rows <= 1.05 * -(-sizes.sum() // 2048) or low == 512  # few windows of 512 and more fit together
        assert rows >= -(-sizes.sum() // 2048)
