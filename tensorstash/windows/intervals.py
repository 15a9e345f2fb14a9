"""Intervals of windows that start at a constant stride, numbered from 0. Memory is O(intervals)."""

from dataclasses import dataclass

import numpy as np

from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.native.guide import guide
from tensorstash.native.guide import locate as locate_pieces
from tensorstash.native.kernel import Guide

Ranges = tuple[Int64s, Int64s]  # the first number of each range, and the number after its last one


@dataclass(frozen=True, slots=True)
class Intervals:
    """Interval k holds the ids `ends[k - 1]` to `ends[k]`; id i starts at slot `base[k] + stride * i`."""

    guide: Guide  # of the ids, with a base of each interval
    stride: int

    def __len__(self) -> int:
        return int(self.guide.ends[-1]) if len(self.guide.ends) else 0

    @property
    def first_ids(self) -> Int64s:
        """(k,) the first id of each interval."""
        return np.concatenate([[0], self.guide.ends[:-1]]).astype(np.int64)

    @property
    def first(self) -> Int64s:
        """(k,) the slot at which the first window of each interval starts."""
        return self.guide.base + self.stride * self.first_ids


def intervals(first: Int64s, counts: Int64s, stride: int) -> Intervals:
    """Number the windows of intervals that begin at the slots `first` (ascending) and hold `counts` windows each."""
    filled = counts > 0
    first, counts = first[filled], counts[filled]
    ends = np.cumsum(counts)
    return Intervals(guide(np.stack([ends, first + stride * (counts - ends)], 1)), stride)


def no_intervals() -> Intervals:
    """No window."""
    return intervals(np.empty(0, np.int64), np.empty(0, np.int64), 1)


def windows_in(slots: Int64s, length: int, stride: int) -> Int64s:
    """How many windows of `length` slots fit into each run."""
    return np.maximum((slots - length) // stride + 1, 0)


def locate(within: Intervals, ids: Int64s) -> Int64s:
    """The slot at which each window starts."""
    if len(within.guide.base) == 1:
        return (ids if within.stride == 1 else ids * within.stride) + within.guide.base[0]
    return locate_pieces(within.guide, within.stride, ids)[1]


def covered(within: Intervals, length: int) -> Ranges:
    """The ranges `[low, high)` of slots that lie in windows of `length` slots; one range per window if none overlap."""
    if within.stride > length:
        low = locate(within, np.arange(len(within)))
        return low, low + length
    return union(within.first, within.guide.base + within.stride * (within.guide.ends - 1) + length)


def keep(within: Intervals, low: Int64s, high: Int64s) -> Intervals:
    """The windows that start in one of the slot ranges `[low, high)`, which ascend and do not overlap."""
    return of_ids(within, count_before(within, low), count_before(within, high))


def of_ids(within: Intervals, low: Int64s, high: Int64s) -> Intervals:
    """The windows with ids in the ranges `[low, high)`, which ascend and do not overlap."""
    low, high = cut_ranges(within.first_ids, low, high)
    return intervals(locate(within, low), high - low, within.stride)


def count_before(within: Intervals, slots: Int64s) -> Int64s:
    """How many windows start before each slot."""
    if not len(within):
        return np.zeros_like(slots)
    first, first_ids = within.first, within.first_ids
    k = np.maximum(np.searchsorted(first, slots, "right") - 1, 0)
    inside = -((first[k] - slots) // within.stride)
    return first_ids[k] + np.clip(inside, 0, within.guide.ends[k] - first_ids[k])


def cut_ranges(bounds: Int64s, low: Int64s, high: Int64s) -> Ranges:
    """Ranges `[low, high)` cut at the bounds; both ascend, and the ranges do not overlap."""
    filled = low < high
    low, high = low[filled], high[filled]
    if not len(low):
        return low, high
    cuts = bounds[np.searchsorted(bounds, low[0], "right") : np.searchsorted(bounds, high[-1])]
    edges = np.sort(np.concatenate([low, high, cuts]), kind="stable")
    edges = edges[np.append(True, edges[1:] != edges[:-1])]
    k = np.searchsorted(low, edges[:-1], "right") - 1
    inside = edges[:-1] < high[k]
    return edges[:-1][inside], edges[1:][inside]


def drop(within: Intervals, low: Int64s, high: Int64s) -> Intervals:
    """The windows that start in none of the slot ranges `[low, high)`, which ascend and do not overlap."""
    edge = np.iinfo(np.int64)
    return keep(within, np.concatenate([[edge.min // 2], high]), np.concatenate([low, [edge.max // 2]]))


def union(low: Int64s, high: Int64s) -> Ranges:
    """Ranges `[low, high)` in any order as ascending ranges that neither overlap nor touch."""
    if (low[1:] < low[:-1]).any():
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
    if not len(low):
        return low, high
    stops = np.maximum.accumulate(high)
    new = np.append(True, low[1:] > stops[:-1])
    return low[new], stops[np.append(new[1:], True)]


def true_ranges(mask: Bools, start: int = 0) -> Ranges:
    """The ranges `[low, high)` of true values in a mask, whose first value is that of position `start`."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)) + start
    return edges[::2], edges[1::2]
