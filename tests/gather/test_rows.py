"""The inside of `gather/rows.py`: the rows of windows with empty slots anywhere, beside a list of slots."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorstash.common.records import some_of
from tensorstash.gather.rows import InSlots, Stretches, as_tensors, count_of, matrix, whole
from tensorstash.native.kernel import Fragments

FRAGMENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=6)


def numbers(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def fragments_of(counts: list[tuple[int, int]], behind: int) -> tuple[Fragments, list[int]]:
    """Fragments of (empty slots, rows), and the row of every slot, -1 for an empty one."""
    slots: list[int] = []
    first: list[int] = []
    row: list[int] = []
    for empty, count in counts:
        slots += [-1] * empty
        done = sum(one >= 0 for one in slots)
        first.append(len(slots))
        row.append(done)
        slots += range(done, done + count)
    slots += [-1] * behind
    begins, at, rows = (np.array(one, np.int64) for one in (first, row, [count for _, count in counts]))
    return as_tensors(Fragments(begins, at, rows), torch.device("cpu")), slots


@settings(max_examples=200)
@given(FRAGMENTS, st.integers(0, 5), st.integers(1, 4), st.integers(0, 4), st.data())
def test_rows_of_windows_are_those_of_their_slots(
    counts: list[tuple[int, int]], behind: int, history: int, horizon: int, data: st.DataObject
) -> None:
    fragments, slots = fragments_of(counts, behind)
    length = history + horizon
    windows = [slots[start : start + length] for start in range(len(slots) - length + 1)]
    if not windows:
        return
    skipped = data.draw(st.lists(st.integers(0, length - 1), min_size=len(windows), max_size=len(windows)))
    every = torch.arange(-history, horizon)
    for draw in (-1, 0):
        rows = InSlots(numbers([history + k for k in range(len(windows))]), numbers(skipped)[:, None])
        found = matrix(rows, fragments, every, draw).tolist()
        left_out = skipped if draw == 0 else [0] * len(windows)
        assert found == [[-1] * n + window[n:] for n, window in zip(left_out, windows)]

    anchors, every_inside = whole(rows, fragments, history, horizon)
    assert every_inside is not None
    for window, row, inside, left in zip(windows, anchors.tolist(), every_inside.tolist(), skipped):
        # rows of two fragments follow one another where no slot between them is empty, and are gathered row by row
        joined = any(one[0] == 0 for one in counts[1:])
        assert not inside or (window == list(range(row - history, row + horizon)) and left == 0)
        assert inside or joined or -1 in window or left


def test_without_fragments_slots_are_rows() -> None:
    rows = InSlots(numbers([5, 3]), None)
    anchors, inside = whole(rows, None, 2, 1)
    assert (anchors.tolist(), inside) == ([5, 3], None)
    assert matrix(rows, None, torch.arange(-2, 1), -1).tolist() == [[3, 4, 5], [1, 2, 3]]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=5))
def test_a_stretch_stands_at_the_end_of_its_slots(stretches: list[tuple[int, int]]) -> None:
    stop = [begin + count for begin, count in stretches]
    rows = Stretches(numbers(stop), numbers([count for _, count in stretches]), numbers(stop))
    expected = [[-1] * (4 - count) + list(range(begin, begin + count)) for begin, count in stretches]
    assert matrix(rows, None, torch.arange(-4, 0), -1).tolist() == expected
    anchors, inside = whole(rows, None, 4, 0)
    assert inside is not None
    assert inside.tolist() == [-1 not in window for window in expected]
    assert anchors.tolist() == stop
    some = some_of(rows, np.array([0]))
    assert (count_of(some), some.stop.tolist()) == (1, stop[:1])
