"""The inside of `gather/empty.py`: the rows of windows with empty slots anywhere, beside a list of slots."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.gather.empty import anchor_rows, rows_of
from tensorstash.gather.memory import Filling, Fragments
from tensorstash.native.guide import guide

STRETCHES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=6)


def plan_of(stretches: list[tuple[int, int]], behind: int, history: int, horizon: int) -> tuple[Filling, list[int]]:
    """The filling of stretches of (empty slots, rows), and the row of every slot, -1 for an empty one."""
    slots: list[int] = []
    first: list[int] = []
    row: list[int] = []
    rows: list[int] = []
    for empty, count in stretches:
        slots += [-1] * empty
        done = sum(rows)
        first.append(len(slots))
        row.append(done)
        rows.append(count)
        slots += range(done, done + count)
    slots += [-1] * behind
    begins, at, counts = (np.array(one, np.int64) for one in (first, row, rows))
    fragments = Fragments(begins, at, counts, guide(np.append(begins[1:], len(slots))[:, None]))
    return Filling(fragments, history, horizon, {}, {}), slots


@settings(max_examples=200)
@given(STRETCHES, st.integers(0, 5), st.integers(1, 4), st.integers(0, 4))
def test_rows_of_windows_are_those_of_their_slots(
    stretches: list[tuple[int, int]], behind: int, history: int, horizon: int
) -> None:
    plan, slots = plan_of(stretches, behind, history, horizon)
    starts = np.arange(len(slots) - history - horizon + 1)
    if not len(starts):
        return
    windows = [slots[start : start + history + horizon] for start in starts.tolist()]

    assert rows_of(plan, starts + history).tolist() == windows

    rows, whole = anchor_rows(plan, starts + history)
    for window, row, inside in zip(windows, rows.tolist(), whole.tolist()):
        # rows of two fragments follow one another where no slot between them is empty, and are gathered row by row
        joined = any(one[0] == 0 for one in stretches[1:])
        assert not inside or window == list(range(row - history, row + horizon))
        assert inside or joined or -1 in window
