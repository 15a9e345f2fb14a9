"""Parts of windows: before, between and from cuts, which are a slot in every entity."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.windows.intervals import Intervals, keep
from tensorstash.windows.slots import Slots, slots_at, slots_from


def bounds(slots: Slots, offsets: Int64s) -> Int64s:
    """The slot at which each entity begins, with the lead of its first run, and the end: `(entities + 1,)`."""
    return np.where(offsets < offsets[-1], slots_at(slots, offsets) - slots.lead, slots.total)


def at_time(slots: Slots, offsets: Int64s, times: Int64s, moment: int) -> Int64s:
    """The first slot of each entity at or after a time: `(entities,)`."""
    return np.minimum(slots_from(slots, times, bisect_rows(times, offsets, moment), moment), bounds(slots, offsets)[1:])


def at_share(slots: Slots, offsets: Int64s, fraction: float) -> Int64s:
    """The slot behind a fraction of the rows of each entity: `(entities,)`."""
    rows = offsets[:-1] + share(fraction, np.diff(offsets))
    return np.minimum(slots_at(slots, rows), bounds(slots, offsets)[1:])


def share(fraction: float, counts: Int64s) -> Int64s:
    """A fraction of each count, rounded to the nearest."""
    return np.floor(counts * fraction + 0.5).astype(np.int64)


def ascending(fractions: Sequence[float]) -> Sequence[float]:
    """Fractions that can cut."""
    inside = all(isinstance(fraction, (float, np.floating)) and 0 < fraction < 1 for fraction in fractions)
    if not inside or any(one >= two for one, two in pairwise(fractions)):
        raise ValueError(f"Fractions lie in (0, 1) and ascend; got {', '.join(map(repr, fractions))}.")
    return fractions


def divide(
    windows: Intervals, slots: Slots, offsets: Int64s, cuts: Sequence[Int64s], *, history: int, horizon: int
) -> list[Intervals]:
    """Part k: the windows whose horizon, or all of which without one, lies in `[cut k-1, cut k)` of their entity.

    The lead of a run counts for nothing: nothing has been observed there.
    """
    edges = bounds(slots, offsets)
    begins, ends = edges[:-1], edges[1:]
    parts = []
    for low, high in pairwise([begins, *cuts, ends]):
        if horizon:
            first = np.maximum(low - history, begins)
        else:
            is_run = np.isin(low, slots.first[~slots.joined])
            first = np.where(is_run, low - slots.lead, low)
        last = np.minimum(high - history - horizon + 1, ends)
        parts.append(keep(windows, first, np.maximum(first, last)))
    return parts


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
