"""Ranges of rows for which something is true, and the slots that they are."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.stash.missing import missing_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Ranges, cut_ranges, true_ranges, union
from tensorstash.windows.slots import Slots, slots_at

_BLOCK = 1 << 20  # rows scanned at a time


def missing_ranges(stash: Stash, name: str) -> Ranges:
    """The ranges `[low, high)` of rows in which a column has a missing value."""
    missing = missing_rows(stash, name)
    return (np.empty(0, np.int64), np.empty(0, np.int64)) if missing is None else row_ranges(missing, stash.rows)


def row_ranges(true: Callable[[slice], NDArray[np.bool_]], rows: int) -> Ranges:
    """The ranges `[low, high)` of true rows; the test runs in blocks."""
    ranges = [true_ranges(true(slice(start, start + _BLOCK)), start) for start in range(0, max(rows, 1), _BLOCK)]
    low, high = map(np.concatenate, zip(*ranges))
    return union(low, high)


def slot_ranges(slots: Slots, low: Int64s, high: Int64s) -> Ranges:
    """Ranges of rows as ranges of slots, without the empty slots between the rows."""
    low, high = cut_ranges(slots.fragments.row, low, high)
    return slots_at(slots, low), slots_at(slots, high - 1) + 1
