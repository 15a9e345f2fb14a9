"""Parts of windows: before, between and from cuts, which are a slot in every run."""

from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals, keep
from tensorstash.windows.layout import Layout, entities_of
from tensorstash.windows.slots import run_edges, run_rows, slots_at

Moment = SupportsIndex | str | date | np.datetime64


def check_timed(stash: Stash, what: str) -> None:
    """Refuse to divide by time where there are no times."""
    if stash.time is None:
        raise ValueError(f"{what} divides by time, and this stash has none: ts.load(..., time=...).")


def moments_of(stash: Stash, cuts: Sequence[Moment]) -> list[int]:
    """Ascending times as ticks of the clock."""
    check_timed(stash, "split")
    if fractions := [cut for cut in cuts if isinstance(cut, (float, np.floating))]:
        raise ValueError(
            f"split cuts at times; got {fractions[0]!r}. To cut at a fraction of the rows of each entity: "
            "split_fraction."
        )
    moments = [stash.clock.parse(cut) for cut in cuts]
    if any(one >= two for one, two in pairwise(moments)):
        raise ValueError(f"Cuts ascend; got {', '.join(map(str, cuts))}.")
    return moments


def entity_edges(layout: Layout) -> Int64s:
    """The slot at which the first run of each entity begins, and the end of all slots: `(entities + 1,)`."""
    begins, ends = run_edges(layout.slots)
    first_rows, _ = run_rows(layout.slots, layout.stash.rows)
    return np.append(begins, ends[-1:])[np.searchsorted(first_rows, layout.offsets)]


def cut_at_rows(layout: Layout, rows: Int64s) -> Int64s:
    """The slot of each run at or behind one row of each entity, `rows` `(entities,)`: `(runs,)`.

    Where the run begins at that row or later, it is the slot of the run's first row, where it ends before, the run's
    end.
    """
    low, high = run_rows(layout.slots, layout.stash.rows)
    own = np.clip(rows[entities_of(layout, low)], low, high)
    _, ends = run_edges(layout.slots)
    return np.where(own < high, slots_at(layout.slots, np.minimum(own, high - 1)), ends)


def cut_at_time(layout: Layout, moment: int) -> Int64s:
    """The first slot of each run at or after a time, as `cut_at_rows`; empty slots have times as well: `(runs,)`."""
    slots, times = layout.slots, layout.times
    assert times is not None
    rows = bisect_rows(times, layout.offsets, moment)
    found = cut_at_rows(layout, rows)
    low, high = run_rows(slots, layout.stash.rows)
    before = np.clip(rows[entities_of(layout, low)], low, high) - 1  # the run's last row before the time
    slot_before = slots_at(slots, np.maximum(before, low))
    which = np.flatnonzero((before >= low) & (found - slot_before > 1))
    if slots.frequency is None or not len(which):
        return found
    last = times[before[which]]
    first, end = np.ones(len(which), np.int64), (found - slot_before)[which]
    while (first < end).any():
        middle = (first + end) // 2
        later = slots.frequency.advance(last, middle) >= moment
        first, end = np.where(later, first, np.minimum(middle + 1, end)), np.where(later, middle, end)
    found[which] = slot_before[which] + first
    return found


def at_share(layout: Layout, fraction: float) -> Int64s:
    """The slot of each run behind a fraction of its entity's rows: `(runs,)`."""
    return cut_at_rows(layout, layout.offsets[:-1] + share(fraction, np.diff(layout.offsets)))


def share(fraction: float, counts: Int64s) -> Int64s:
    """A fraction of each count, rounded to the nearest."""
    return np.floor(counts * fraction + 0.5).astype(np.int64)


def ascending(fractions: Sequence[float]) -> Sequence[float]:
    """The fractions, checked: ascending and between 0 and 1."""
    inside = all(isinstance(fraction, (float, np.floating)) and 0 < fraction < 1 for fraction in fractions)
    if not inside or any(one >= two for one, two in pairwise(fractions)):
        raise ValueError(f"Fractions lie in (0, 1) and ascend; got {', '.join(map(repr, fractions))}.")
    return fractions


def divide(layout: Layout, windows: Intervals, cuts: Sequence[Int64s]) -> list[Intervals]:
    """Part k: the windows whose whole horizon (without a horizon: whole window) lies in `[cut k-1, cut k)`.

    The lead of a run does not count, because nothing was observed there.
    """
    begins, ends = run_edges(layout.slots)
    parts = []
    for low, high in pairwise([begins, *cuts, ends]):
        if layout.horizon:
            first = np.maximum(low - layout.history, begins)
        else:
            first = np.where(low == begins + layout.slots.lead, begins, low)
        last = np.minimum(high - layout.length + 1, ends)
        parts.append(keep(windows, first, np.maximum(first, last)))
    return parts


def of_entities(layout: Layout, windows: Intervals, chosen: Int64s) -> Intervals:
    """The windows of some entities, ascending indices into `stash.entities`."""
    begins, ends = run_edges(layout.slots)
    low, _ = run_rows(layout.slots, layout.stash.rows)
    wanted = np.zeros(len(layout.offsets) - 1, np.bool_)
    wanted[chosen] = True
    which = wanted[entities_of(layout, low)]
    return keep(windows, begins[which], ends[which])


def bisect_rows(times: Int64s, offsets: Int64s, moment: int) -> Int64s:
    """For each entity its first row at or after a time: `(entities,)`, all entities at once."""
    low, high = offsets[:-1].copy(), offsets[1:].copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        later = np.zeros(len(low), bool)
        later[open_] = times[middle[open_]] >= moment
        high = np.where(open_ & later, middle, high)
        low = np.where(open_ & ~later, middle + 1, low)
    return low
