"""Rows by their times, as they were known: the newest one in each bucket of a stretch of time, or the newest few of it.

By the kernel, or in numpy. Rows of an entity follow each other, in the order of times or of known times; of each time,
the newest version that was known counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.common.records import each_array, some_of
from tensorstash.native import kernel, library
from tensorstash.native.guide import first_rows_in_numpy

BLOCK = 64  # rows; must equal the constant in versions.c
_TOGETHER = 1 << 13  # rows and slots that are looked at together: they take some 300 kB
_TIMES = 1 << 20  # likewise, of a whole stash


@dataclass(frozen=True, eq=False, slots=True)
class Versions:
    """The times of rows, and of some ticks in which stretches are given."""

    times: Int64s  # (rows,)
    known: Int64s | None  # (rows,) when each row became known; `None`: always
    reach: Int64s | None  # as `reach_of` gives it if the rows of an entity are in the order of known times, else `None`
    unit: int  # ticks in a unit of `times`
    spacing: int  # ticks by which different times differ at least
    all: bool  # whether rows of one time do not replace each other


class Moments(NamedTuple):
    """Of windows, arrays `(windows,)`: their rows, their stretch in ticks, the first known time that is too late."""

    low: Int64s
    high: Int64s
    start: Int64s
    stop: Int64s
    late: Int64s | None


def pick(of: Versions, at: Moments, slots: int, every: int | None) -> Int64s:
    """The rows of windows, `(windows, slots)`, -1 for an empty slot: the newest ones, or those of buckets of ticks."""
    if library.LIBRARY is None:
        return pick_in_numpy(of, at, slots, every)
    return kernel.pick(of, each_array(at, np.ascontiguousarray), slots, every)


def pick_in_numpy(of: Versions, at: Moments, slots: int, every: int | None) -> Int64s:
    """`pick` in numpy: the last rows of all windows, and then earlier ones of those that these do not fill."""
    first, stop = _candidates(of, at)
    if not _last_counts(of, every):
        return _pick_from(of, at, (first, stop), slots, every)
    near = np.maximum(first, stop - 2 * slots)
    rows = _pick_from(of, at, (near, stop), slots, every)
    rest = np.flatnonzero((rows < 0).any(1) & (first < near))
    rows[rest] = _pick_from(of, some_of(at, rest), (first[rest], stop[rest]), slots, every)
    return rows


def _last_counts(of: Versions, every: int | None) -> bool:
    """Whether of the known rows of a slot the last one counts: a window whose slots are full needs no others."""
    return of.reach is None or (every is not None and every <= of.spacing)


def _pick_from(of: Versions, at: Moments, ranges: tuple[Int64s, Int64s], slots: int, every: int | None) -> Int64s:
    """The rows of windows out of a range of rows of each."""
    first, stop = ranges
    rows = np.full((len(first), slots), -1)
    for some in _together(stop - first + slots):
        into, window_at = rows[some], some_of(at, some)
        window, row = _visible(of, window_at, first[some], stop[some])
        if every is None:
            _put_newest(of, window, row, into)
        else:
            slot = window * slots + (of.times[row] * of.unit - window_at.start[window]) // every
            _put_into_buckets(of, slot, row, into.reshape(-1), last_counts=_last_counts(of, every))
    return rows


def _visible(of: Versions, at: Moments, first: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
    """The rows in `[first, stop)` of windows that lie in their stretch and were known, and the window of each."""
    counts = stop - first
    window, row = np.repeat(np.arange(len(counts)), counts), np.repeat(stop - np.cumsum(counts), counts)
    row += np.arange(len(row))
    if of.reach is not None:  # all were known
        times = of.times[row]
        inside = times >= np.repeat(_units(of, at.start), counts)
        inside &= times < np.repeat(_units(of, at.stop), counts)
    elif of.known is not None and at.late is not None:  # all lie in the stretch
        inside = of.known[row] < np.repeat(at.late, counts)
    else:
        return window, row
    return window[inside], row[inside]


def _put_into_buckets(of: Versions, slot: Int64s, row: Int64s, rows: Int64s, *, last_counts: bool) -> None:
    """Write the row of the newest time to each slot, and of equal times the last one."""
    if not last_counts:
        times, newest = of.times[row], np.full(len(rows), np.iinfo(np.int64).min)
        np.maximum.at(newest, slot, times)
        is_newest = times == newest[slot]
        slot, row = slot[is_newest], row[is_newest]
    np.maximum.at(rows, slot, row)


def _put_newest(of: Versions, window: Int64s, row: Int64s, rows: Int64s) -> None:
    """Write the rows of the newest times of each window, of equal times the last one, to its last slots."""
    if of.reach is not None:
        order = np.lexsort((of.times[row], window))  # stable
        window, row = window[order], row[order]
    if of.known is not None and not of.all:
        times = of.times[row]
        last = np.append((window[1:] != window[:-1]) | (times[1:] != times[:-1]), True)[: len(row)]
        window, row = window[last], row[last]
    count, slots = rows.shape
    ends = np.cumsum(np.bincount(window, minlength=count))
    slot = slots - ends[window] + np.arange(len(row))
    there = slot >= 0
    rows[window[there], slot[there]] = row[there]


def _candidates(of: Versions, at: Moments) -> tuple[Int64s, Int64s]:
    """The first row of each window that may matter, and the row after the last one."""
    if of.reach is None or of.known is None or at.late is None:
        first = first_rows_in_numpy(of.times, at.low, at.high, _units(of, at.start))
        return first, first_rows_in_numpy(of.times, first, at.high, _units(of, at.stop))
    stop = first_rows_in_numpy(of.known, at.low, at.high, at.late)
    low = at.low // BLOCK
    blocks = first_rows_in_numpy(of.reach, low, np.maximum(low, stop // BLOCK), _units(of, at.start))
    return np.minimum(np.maximum(at.low, blocks * BLOCK), stop), stop


def _units(of: Versions, ticks: Int64s) -> Int64s:
    """The first time in the unit of the rows at or after some ticks."""
    return ticks if of.unit == 1 else -(-ticks // of.unit)


def _together(counts: Int64s) -> Iterator[slice]:
    """Windows that have few enough rows and slots to be looked at together."""
    start, ends = 0, np.cumsum(counts)
    while start < len(counts):
        upto = int(ends[start] - counts[start]) + _TOGETHER
        stop = max(start + 1, int(np.searchsorted(ends, upto, "right")))
        yield slice(start, stop)
        start = stop


def reach_of(times: Int64s, offsets: Int64s) -> Int64s:
    """For each whole block of rows the latest time of the entity of its last row, from its first row up to this row."""
    stop = np.arange(BLOCK, len(times) + 1, BLOCK)
    entity = np.searchsorted(offsets, stop - 1, "right") - 1
    first = np.maximum(offsets[entity], stop - BLOCK)  # the entity may begin inside the block
    edges = np.stack([first, stop], 1).ravel()[:-1]
    reach = np.maximum.reduceat(times[: len(stop) * BLOCK], edges)[::2].copy()
    of_entities = np.flatnonzero(np.diff(entity)) + 1
    for blocks in np.split(reach, of_entities):  # views
        np.maximum.accumulate(blocks, out=blocks)
    return reach


def spacing_of(times: Int64s) -> int:
    """The greatest common divisor of all differences between times; 0 if all times are equal."""
    found = 0
    for start in range(0, len(times), _TIMES):
        gaps = np.abs(times[start : start + _TIMES] - times[0])
        if found:
            gaps = gaps[gaps % found != 0]
        if len(gaps):
            found = int(np.gcd.reduce(gaps, initial=found))
        if found == 1:
            break
    return found
