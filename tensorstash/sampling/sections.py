"""Windows sorted by their times, and steps in which each rank has windows of one time only.

The table of ids by time takes 4 bytes per window and 4 per distinct time; from 2**31 windows on, 8 of each. The steps
of an epoch take 33 bytes each while it lasts, and up to 120 when it begins.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.sampling.hashes import in_chunks
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
    times = in_chunks(times_of, windows)
    kind: Any = np.int32 if windows < 1 << 31 else np.int64
    ids = np.argsort(times, kind="stable").astype(kind)
    times.sort()
    is_last = np.append(times[1:] != times[:-1], True)
    del times  # before the next arrays are made
    ends = np.flatnonzero(is_last).astype(kind)
    ends += 1
    return Sections(ids, ends)


def cuts(of: Sections, order: Ids, consumed: int, size: int, drop: bool = False) -> Cuts:
    """The steps of an epoch after the first `consumed` windows of its order.

    A step has at most `size` windows of one time, which all ranks share. A partly consumed time continues with its
    remaining windows, whatever size earlier steps had. `drop` leaves out steps of fewer than `size` windows.
    """
    begin, count, ends = _left(of, order, consumed)
    steps = count // size if drop else -(-count // size)
    time = np.repeat(np.arange(len(steps)), steps)
    first = (np.arange(len(time)) - (np.cumsum(steps) - steps)[time]) * size
    last = np.minimum(first + size, count[time])
    position, no_filler = (ends - count)[time], np.zeros(len(time), bool)
    return Cuts(begin[time] + first, begin[time] + last, position + first, position + last, no_filler)


def whole(of: Sections, order: Ids, consumed: int, ranks: int, rank: int) -> Cuts:
    """The windows of one rank in the steps after the first `consumed` windows of the epoch's order.

    A step has the next `ranks` times, and rank r all windows of the r-th of them. In the last step of an epoch, a rank
    without a time has the windows of the first rank as filler. A partly consumed time has its remaining windows.
    """
    begin, count, ends = _left(of, order, consumed)
    first = np.arange(0, len(ends), ranks)
    is_filler = first + rank >= len(ends)
    mine = first + np.where(is_filler, 0, rank)
    after = ends[np.minimum(first + ranks, len(ends)) - 1]
    return Cuts(begin[mine], begin[mine] + count[mine], (ends - count)[mine], after, is_filler)


def _left(of: Sections, order: Ids, consumed: int) -> tuple[Int64s, Int64s, Int64s]:
    """The times of an epoch after the first `consumed` windows of its order, `(times,)` each.

    Of each: where its ids begin, their number, and the position in the order behind them.
    """
    times = order(np.arange(len(of.ends)))
    begin = np.where(times > 0, of.ends[times - 1], 0).astype(np.int64)
    stop = of.ends[times].astype(np.int64)
    ends = np.cumsum(stop - begin)
    passed = int(np.searchsorted(ends, consumed, "right"))
    begin, stop, ends = begin[passed:], stop[passed:], ends[passed:]
    begin[:1] = stop[:1] - (ends[:1] - consumed)
    return begin, stop - begin, ends
