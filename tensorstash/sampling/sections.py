"""Windows sorted by their times, and steps in which each rank has windows of one time only.

The table of ids by time takes 4 bytes per window and 4 per distinct time; from 2**31 windows on, 8 of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.sampling.hashes import chunks
from tensorstash.sampling.order import Ids
from tensorstash.segments.limits import check_free, memory_limits

_BUILDING = 20  # bytes per window while a table is made


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """The ids of all windows by anchor time: the windows of time t, by entity, are `ids[ends[t - 1] : ends[t]]`."""

    ids: Int32s | Int64s  # (windows,)
    ends: Int32s | Int64s  # (times,)


class Cuts(NamedTuple):
    """Steps of one epoch: step k takes `ids[start[k] : stop[k]]` of the sections."""

    start: Int64s  # (steps,)
    stop: Int64s
    position: Int64s  # of the first of these windows in the order of the epoch
    consumed: Int64s  # windows of the epoch's order that are consumed after each step
    is_filler: Bools  # whether the windows are those of another rank


def sections(times_of: Ids, windows: int, by_entity: Int64s | None = None) -> Sections:
    """Sort the ids `0..windows-1` by their times, which `times_of(ids)` returns, `(k,)` int64; equal times by id.

    `by_entity`, `(windows,)`, has the ids in the order of their entities if they are not in it: equal times keep that
    order. `times_of` is called with 65,536 ids at a time. The sort takes up to 20 bytes per window.
    """
    if by_entity is not None:
        placed = sections(lambda places: times_of(by_entity[places]), windows)
        placed.ids[:] = by_entity[placed.ids]
        return placed
    check_free(
        _BUILDING * windows,
        memory_limits(),
        f"Steps by time sort the windows by their times, in {_BUILDING} bytes per window and rank",
        f"a table of {windows:,} windows",
        "Use fewer windows, or a larger stride.",
    )
    times = np.empty(windows, np.int64)
    kind: Any = np.int32 if windows < 1 << 31 else np.int64
    for low, high in chunks(windows):
        times[low:high] = times_of(np.arange(low, high, dtype=np.int64))
    ids = np.argsort(times, kind="stable").astype(kind)
    times.sort()
    is_last = np.append(times[1:] != times[:-1], True)
    del times  # before the next arrays are made
    ends = np.flatnonzero(is_last).astype(kind)
    ends += 1
    return Sections(ids, ends)


def cuts(of: Sections, order: Ids, consumed: int, size: int, drop: bool) -> Iterator[Cuts]:
    """The steps of an epoch after the first `consumed` windows of its order, many steps at a time.

    A step has at most `size` windows of one time, which all ranks share. A partly consumed time continues with its
    remaining windows, whatever size earlier steps had. `drop` leaves out steps of fewer than `size` windows.
    """
    for times in _left(of, order, consumed, 1):
        yield from _cut(*times, size, drop)


def whole(of: Sections, order: Ids, consumed: int, ranks: int, rank: int) -> Iterator[Cuts]:
    """The windows of one rank in the steps after the first `consumed` windows of the epoch's order, many at a time.

    A step has the next `ranks` times, and rank r all windows of the r-th of them. In the last step of an epoch, a rank
    without a time has the windows of the first rank as filler. A partly consumed time has its remaining windows.
    """
    for begin, count, ends in _left(of, order, consumed, ranks):
        first = np.arange(0, len(ends), ranks)
        is_filler = first + rank >= len(ends)
        mine = first + np.where(is_filler, 0, rank)
        after = ends[np.minimum(first + ranks, len(ends)) - 1]
        yield Cuts(begin[mine], begin[mine] + count[mine], (ends - count)[mine], after, is_filler)


def _left(of: Sections, order: Ids, consumed: int, ranks: int) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
    """The times of an epoch after the first `consumed` windows of its order, in blocks of a multiple of `ranks`.

    Of each: where its ids begin, their number, and the position in the order behind them.
    """
    passed, before = _passed(of, order, consumed) if consumed else (0, 0)
    for low, high in chunks(len(of.ends) - passed, multiple=ranks):
        begin, count = _bounds(of, order(np.arange(passed + low, passed + high)))
        ends = before + np.cumsum(count)
        skip = max(0, consumed - before)
        begin[0] += skip
        count[0] -= skip
        before = int(ends[-1])
        yield begin, count, ends


def _passed(of: Sections, order: Ids, consumed: int) -> tuple[int, int]:
    """How many times the first `consumed` windows of an epoch's order hold completely, and the windows of these."""
    before = 0
    for low, high in chunks(len(of.ends)):
        ends = before + np.cumsum(_bounds(of, order(np.arange(low, high)))[1])
        if consumed < ends[-1]:
            k = int(np.searchsorted(ends, consumed, "right"))
            return low + k, int(ends[k - 1]) if k else before
        before = int(ends[-1])
    return len(of.ends), before


def _cut(begin: Int64s, count: Int64s, ends: Int64s, size: int, drop: bool) -> Iterator[Cuts]:
    """Cut times into steps. A time has `count` windows from `begin` on, and ends at position `ends` of the order."""
    steps = count // size if drop else -(-count // size)
    upto = np.cumsum(steps)
    for low, high in chunks(int(upto[-1])):
        step = np.arange(low, high)
        time = np.searchsorted(upto, step, "right")
        first = (step - (upto - steps)[time]) * size
        last = np.minimum(first + size, count[time])
        position = (ends - count)[time]
        yield Cuts(
            begin[time] + first, begin[time] + last, position + first, position + last, np.zeros(len(step), bool)
        )


def _bounds(of: Sections, times: Int64s) -> tuple[Int64s, Int64s]:
    """Where the ids of each time begin, and their number."""
    begin = np.where(times > 0, of.ends[times - 1], 0).astype(np.int64)
    return begin, of.ends[times] - begin
