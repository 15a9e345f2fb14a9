"""Slots: the steps of time that windows count in, each with one row or none. Memory is O(runs).

    run 0: lead | fragment 0 | empty | fragment 1 | run 1: lead | fragment 2 | ...

A fragment is a stretch of rows without an empty slot between them; the lead are the empty slots before a run. Without
any empty slot, slots are rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.frequency import Frequency
from tensorstash.gather.empty import Fragments
from tensorstash.native.guide import guide
from tensorstash.windows.runs import Runs


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the fragments stand among the slots, which are numbered from 0 over all runs."""

    first: Int64s  # (fragments,) the slot of the first row of each
    row: Int64s  # (fragments,) that row
    rows: Int64s  # (fragments,)
    joined: Bools  # (fragments,) whether it goes on with the run of the one before
    frequency: Frequency | None
    lead: int

    @property
    def total(self) -> int:
        """The number of slots."""
        return int(self.first[-1] + self.rows[-1]) if len(self.first) else 0


def place(fragments: Runs, offsets: Int64s, times: Int64s | None, masked: bool, lead: int) -> tuple[Slots, Runs]:
    """Number the slots; with `masked`, fragments a whole number of steps apart become one run with empty slots.

    The runs that come back are in slots, each with its lead.
    """
    if not masked and not lead:
        joined = np.zeros(len(fragments.first), np.bool_)
        return Slots(fragments.first, fragments.first, fragments.rows, joined, fragments.frequency, 0), fragments
    apart = np.zeros(len(fragments.first), np.int64)  # steps of time from the fragment before, 0 where a run begins
    if masked and times is not None and fragments.frequency is not None:
        # both ascend; numpy's own isin is ten times slower
        after = np.flatnonzero(offsets[np.searchsorted(offsets, fragments.first)] != fragments.first)
        rows = fragments.first[after]
        apart[after] = fragments.frequency.steps(times[rows - 1], times[rows])
    gaps = np.where(apart > 0, apart - 1, lead)
    first = np.cumsum(gaps + np.concatenate([[0], fragments.rows[:-1]])[: len(gaps)], dtype=np.int64)
    slots = Slots(first, fragments.first, fragments.rows, apart > 0, fragments.frequency, lead)
    begins = first[apart == 0] - lead
    return slots, Runs(begins, np.diff(begins, append=slots.total), fragments.frequency, fragments.steps)


def fragments_of(slots: Slots) -> Fragments:
    """The fragments with a guide, to find them fast."""
    return Fragments(slots.first, slots.row, slots.rows, guide(np.append(slots.first[1:], slots.total)))


def _fragment(edges: Int64s, at: Int64s) -> NDArray[np.intp]:
    """The last fragment that begins at or before each place; for what is before all, the first."""
    return np.maximum(np.searchsorted(edges, at, "right") - 1, 0)


def rows_at(slots: Slots, at: Int64s) -> tuple[Int64s, Bools]:
    """The row of each slot, or the last one before an empty slot, and which slots are empty; any shape."""
    k = _fragment(slots.first, at)
    after = at - slots.first[k]
    return slots.row[k] + np.clip(after, 0, slots.rows[k] - 1), (after < 0) | (after >= slots.rows[k])


def rows_from(slots: Slots, at: Int64s) -> Int64s:
    """The first row at or after each slot."""
    k = _fragment(slots.first, at)
    return slots.row[k] + np.clip(at - slots.first[k], 0, slots.rows[k])


def slots_at(slots: Slots, rows: Int64s) -> Int64s:
    """The slot of each row; of the row behind the last one, the slot behind the last."""
    if slots.first is slots.row:
        return rows
    k = _fragment(slots.row, rows)
    return slots.first[k] + rows - slots.row[k]


def empty_slots(slots: Slots) -> tuple[Int64s, Int64s]:
    """The ranges `[low, high)` of slots without a row."""
    low, high = np.concatenate([[0], slots.first + slots.rows]), np.append(slots.first, slots.total)
    some = low < high
    return low[some], high[some]


def times_at(slots: Slots, times: Int64s, at: Int64s) -> Int64s:
    """The time of each slot, any shape; that of an empty one follows from the row before it."""
    rows, empty = rows_at(slots, at)
    found = times[rows]
    if slots.frequency is not None and empty.any():
        found[empty] = slots.frequency.advance(found[empty], at[empty] - slots_at(slots, rows[empty]))
    return found


def slots_from(slots: Slots, times: Int64s, rows: Int64s, moment: int) -> Int64s:
    """The first slot of each entity at or after a time, of which `rows` are the first rows, all `(entities,)`."""
    found, before = slots_at(slots, rows), slots_at(slots, np.maximum(rows - 1, 0))
    which = np.flatnonzero((found - before > 1) & slots.joined[_fragment(slots.row, rows)])
    if slots.frequency is None or not len(which):
        return found
    last, low, high = times[rows[which] - 1], np.ones(len(which), np.int64), (found - before)[which]
    while (low < high).any():
        middle = (low + high) // 2
        later = slots.frequency.advance(last, middle) >= moment
        low, high = np.where(later, low, np.minimum(middle + 1, high)), np.where(later, middle, high)
    found[which] = before[which] + low
    return found
