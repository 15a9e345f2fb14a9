"""The inside of `stash/row_statistics.py`: statistics of groups do not depend on where blocks of rows begin."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorstash.stash import row_statistics


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 54), max_size=8, unique=True),
    pack=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_statistics_of_blocks_are_those_of_all_rows(
    block: int, sizes: list[int], cuts: list[int], pack: int, seed: int
) -> None:
    """Groups may be empty or have no included row; rows, in ranges between every two cuts, and NaN do not count."""
    rng = np.random.default_rng(seed)
    rows, offsets = sum(sizes), np.cumsum([0, *sizes])
    values = rng.normal(50, 3, (rows, pack))
    values[rng.random(values.shape) < 0.2] = np.nan
    edges = sorted({min(cut, rows) for cut in cuts})
    edges = edges[: len(edges) // 2 * 2]
    included = row_statistics.Rows(np.array(edges[::2], np.int64), np.array(edges[1::2], np.int64), offsets)
    column = row_statistics.Values(torch.from_numpy(values))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_statistics, "_BLOCK", block)
        count, mean, variance = row_statistics.mean_and_variance(column, included)
        _, low, high = row_statistics.extremes(column, included)
        _, (median,) = row_statistics.quantiles([(column, included)], (0.5,))

    taken = np.zeros(rows, bool)
    for first, last in zip(edges[::2], edges[1::2]):
        taken[first:last] = True
    for group in range(len(sizes)):
        for item in range(pack):
            own = slice(offsets[group], offsets[group + 1])
            kept = values[own, item][taken[own]]
            kept = kept[~np.isnan(kept)]
            assert count[group, item] == len(kept)
            if len(kept):
                found = [of[group, item] for of in (mean, variance, low, high, median)]
                exact = [kept.mean(), kept.var(), kept.min(), kept.max(), np.median(kept)]
                np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)
