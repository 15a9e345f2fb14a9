"""The inside of `stash/printed.py`: the share of rows in each stretch of time, beside a loop over rows."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.stash.printed import row_shares

Times = st.lists(st.integers(0, 5000), min_size=1, max_size=30, unique=True)


@settings(max_examples=40)
@given(st.lists(Times, min_size=1, max_size=4), st.booleans())
def test_coverage_counts_the_lines_of_each_stretch(entities: list[list[int]], timed: bool) -> None:
    frame = pl.DataFrame(
        [(k, t, 1.0) for k, times in enumerate(entities) for t in times], ["e", "t", "y"], orient="row"
    )
    stash = ts.load(frame, ["y"], entity="e", time="t" if timed else None)
    chosen, shares = row_shares(stash)
    assert chosen == [*range(len(entities))]
    low = min(map(min, entities)) if timed else 0
    high = max(map(max, entities)) if timed else max(map(len, entities)) - 1
    bins = min(120, high + 1 - low)
    rows = np.zeros((len(entities), bins))
    edges = [low + (high + 1 - low) * k // bins for k in range(bins)]
    for line, times in zip(rows, entities):
        for at in times if timed else range(len(times)):
            line[max(k for k, edge in enumerate(edges) if edge <= at)] += 1
    full = rows.max() - 1 if rows.max() > 3 else rows.max()
    expected = [[1.0 if count >= full else min(count / rows.max(), 2 / 3) for count in line] for line in rows]
    np.testing.assert_array_equal(shares, expected)


def test_a_gap_of_a_few_hours_in_a_year_is_seen() -> None:
    """Of 120 bins of three days, the one that lacks four of its 73 hours."""
    hours = np.delete(np.arange(8760), np.arange(4000, 4004))
    stash = ts.load({"t": hours.astype("M8[h]"), "y": np.zeros(len(hours))}, time="t")
    assert np.flatnonzero(row_shares(stash)[1][0] < 1).tolist() == [4000 * 120 // 8760]


def test_far_times_of_nanoseconds_have_shares() -> None:
    stash = ts.load({"t": np.array([-(2**62), 2**62]).astype("M8[ns]"), "y": [1.0, 2.0]}, ["y"], time="t")
    assert row_shares(stash)[1].nonzero()[1].tolist() == [0, 119]
