"""Windows as intervals: stretches of starts at a constant stride, numbered from 0. Memory is O(intervals)."""

from dataclasses import dataclass

import numpy as np

from tensorstash.arrays import Int32s, Int64s

_GUIDE_STEPS = 4  # then a binary search is cheaper


@dataclass(frozen=True, slots=True)
class Guide:
    """Pieces of the numbers from 0 on, piece k from `ends[k - 1]` to `ends[k]`, and a table of where to look."""

    ends: Int64s  # (k,) ascending
    shift: int
    table: Int32s  # table[i >> shift] is the piece of the number (i >> shift) << shift


def guide(ends: Int64s) -> Guide:
    """A table of four to eight entries per piece, however long the pieces are."""
    total = int(ends[-1]) if len(ends) else 0
    shift = (total // (4 * len(ends))).bit_length() if len(ends) else 0
    return Guide(ends, shift, np.searchsorted(ends, np.arange(0, total, 1 << shift), "right").astype(np.int32))


def find(pieces: Guide, numbers: Int64s) -> Int32s:
    """The piece of each number in `[0, ends[-1])`: a look into the table, then a step or two."""
    k = pieces.table[numbers >> pieces.shift]
    for _ in range(_GUIDE_STEPS):
        beyond = pieces.ends[k] <= numbers
        if not beyond.any():
            return k
        k += beyond
    return np.searchsorted(pieces.ends, numbers, "right").astype(np.int32)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Interval k holds the ids `ends[k - 1]` to `ends[k]`; id i starts at slot `base[k] + stride * i`."""

    base: Int64s  # (k,)
    guide: Guide  # of the ids
    stride: int

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def ends(self) -> Int64s:
        """(k,) the number of windows up to and with each interval."""
        return self.guide.ends

    @property
    def begins(self) -> Int64s:
        """(k,) the first id of each interval."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    @property
    def first(self) -> Int64s:
        """(k,) the slot at which the first window of each interval starts."""
        return self.base + self.stride * self.begins


def intervals(first: Int64s, counts: Int64s, stride: int) -> Intervals:
    """Number the windows of intervals that begin at the slots `first` (ascending) and hold `counts` windows."""
    some = counts > 0
    first, counts = first[some], counts[some]
    ends = np.cumsum(counts, dtype=np.int64)
    return Intervals(first - (ends - counts) * stride, guide(ends), stride)


def of_runs(first: Int64s, slots: Int64s, length: int, stride: int) -> Intervals:
    """The windows of `length` slots in runs that begin at `first` and have `slots` slots."""
    return intervals(first, np.maximum((slots - length) // stride + 1, 0), stride)


def locate(within: Intervals, ids: Int64s) -> Int64s:
    """The slot at which each window starts."""
    if len(within.base) == 1:
        return (ids if within.stride == 1 else ids * within.stride) + within.base[0]
    k = find(within.guide, ids)
    starts = within.base[k]
    starts += ids * within.stride
    return starts


def count_before(within: Intervals, slots: Int64s) -> Int64s:
    """How many windows start before each slot."""
    if not len(within):
        return np.zeros(len(slots), np.int64)
    first, begins = within.first, within.begins
    k = np.maximum(np.searchsorted(first, slots, "right") - 1, 0)
    inside = -((first[k] - slots) // within.stride)
    return begins[k] + np.clip(inside, 0, within.ends[k] - begins[k])


def keep(within: Intervals, low: Int64s, high: Int64s) -> Intervals:
    """Only the windows that start in one of the ranges of slots `[low, high)`, which ascend and do not overlap."""
    begins, ends = count_before(within, low), count_before(within, high)
    some = begins < ends
    begins, ends = begins[some], ends[some]
    if not len(begins):
        return intervals(np.empty(0, np.int64), np.empty(0, np.int64), within.stride)
    edges = np.sort(np.concatenate([begins, ends, within.begins]))
    edges = edges[np.append(True, edges[1:] != edges[:-1])]
    piece_begins, piece_ends = edges[:-1], edges[1:]
    k = np.searchsorted(begins, piece_begins, "right") - 1
    inside = (k >= 0) & (piece_begins < ends[np.maximum(k, 0)])
    piece_begins, piece_ends = piece_begins[inside], piece_ends[inside]
    return intervals(locate(within, piece_begins), piece_ends - piece_begins, within.stride)


def drop(within: Intervals, low: Int64s, high: Int64s) -> Intervals:
    """Only the windows that start in none of the ranges of slots `[low, high)`, which ascend and do not overlap."""
    edge = np.iinfo(np.int64)
    return keep(within, np.concatenate([[edge.min // 2], high]), np.concatenate([low, [edge.max // 2]]))


def union(low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Ranges `[low, high)` in any order as ascending ranges that neither overlap nor touch."""
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    if not len(low):
        return low, reach
    new = np.concatenate([[True], low[1:] > reach[:-1]])
    last = np.concatenate([new[1:], [True]])
    return low[new], reach[last]


def spread(low: Int64s, high: Int64s, count: int, step: int) -> tuple[Int64s, Int64s]:
    """The union of the ranges moved back by 0, `step`, ..., `(count - 1) * step`, doubling as it goes."""
    done = 1
    low, high = union(low, high)
    while done < count:
        more = min(done, count - done)
        low, high = union(np.concatenate([low, low - more * step]), np.concatenate([high, high - more * step]))
        done += more
    return low, high
