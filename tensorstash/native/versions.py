"""Rows by their times, as they were known: the newest one in each bucket of a stretch of time, or the newest few of it.

By the kernel, or in numpy. Rows of an entity follow each other, in the order of times or of known times; of each time,
the newest version that was known counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.native import kernel, library
from tensorstash.native.guide import first_rows_in_numpy

BLOCK = 64  # rows; must equal the constant in versions.c
_CANDIDATES = 1 << 20  # rows that are looked at together: they take some 60 MB


@dataclass(frozen=True, eq=False, slots=True)
class Versions:
    """The times of rows, and of some ticks in which stretches are given."""

    times: Int64s  # (rows,)
    known: Int64s | None  # (rows,) when each row became known; `None`: always
    reach: Int64s | None  # as `reach_of` gives it if the rows of an entity are in the order of known times, else `None`
    unit: int  # ticks in a unit of `times`
    apart: int  # ticks by which different times differ at least
    all: bool  # whether rows of one time do not replace each other


@dataclass(frozen=True, slots=True)
class Moments:
    """Of windows, arrays `(windows,)`: their rows, their stretch in ticks, the first known time that is too late."""

    low: Int64s
    high: Int64s
    begin: Int64s
    end: Int64s
    late: Int64s | None


def pick(of: Versions, at: Moments, slots: int, every: int | None) -> Int64s:
    """The rows of windows, `(windows, slots)`, -1 for an empty slot: the newest ones, or those of buckets of ticks."""
    if library.LIBRARY is None:
        return pick_in_numpy(of, at, slots, every)
    numbers = of.unit, every or 0, slots, of.apart, of.all
    low, high, begin, end = map(np.ascontiguousarray, (at.low, at.high, at.begin, at.end))
    late = None if at.late is None or of.known is None else np.ascontiguousarray(at.late)
    return kernel.pick(of.times, of.known, of.reach, numbers, low, high, begin, end, late)


def pick_in_numpy(of: Versions, at: Moments, slots: int, every: int | None) -> Int64s:
    """`pick` in numpy: all rows that may matter are sorted by window and time."""
    rows = np.full((len(at.low), slots), -1)
    first, stop = _candidates(of, at)
    for some in _together(stop - first):
        window = np.repeat(np.arange(some.start, some.stop), (stop - first)[some])
        counts = np.cumsum((stop - first)[some])
        row = np.arange(len(window)) - np.repeat(counts - (stop - first)[some], (stop - first)[some]) + first[window]
        inside = of.times[row] >= _units(of, at.begin)[window]
        inside &= of.times[row] < _units(of, at.end)[window]
        if of.known is not None and at.late is not None:
            inside &= of.known[row] < at.late[window]
        window, row = window[inside], row[inside]
        slot = window
        if every is not None:
            slot = window * slots + (of.times[row] * of.unit - at.begin[window]) // every
        order = np.lexsort((of.times[row], slot))  # stable: of equal times the last known row comes last
        row, slot = row[order], slot[order]
        ends = slot[1:] != slot[:-1]
        if every is not None:
            last = np.append(ends, True)[: len(row)]
            rows.reshape(-1)[slot[last]] = row[last]
            continue
        if of.known is not None and not of.all:
            last = np.append(ends | (of.times[row[1:]] != of.times[row[:-1]]), True)[: len(row)]
            row, slot = row[last], slot[last]
        back = np.searchsorted(slot, slot, "right") - 1 - np.arange(len(slot))  # from the newest one of the window
        newest = back < slots
        rows[slot[newest], slots - 1 - back[newest]] = row[newest]
    return rows


def _candidates(of: Versions, at: Moments) -> tuple[Int64s, Int64s]:
    """The first row of each window that may matter, and the row after the last one."""
    if of.reach is None or of.known is None or at.late is None:
        first = first_rows_in_numpy(of.times, at.low, at.high, _units(of, at.begin))
        return first, first_rows_in_numpy(of.times, first, at.high, _units(of, at.end))
    stop = first_rows_in_numpy(of.known, at.low, at.high, at.late)
    low = at.low // BLOCK
    blocks = first_rows_in_numpy(of.reach, low, np.maximum(low, stop // BLOCK), _units(of, at.begin))
    return np.minimum(np.maximum(at.low, blocks * BLOCK), stop), stop


def _units(of: Versions, ticks: Int64s) -> Int64s:
    """The first time in the unit of the rows at or after some ticks."""
    return ticks if of.unit == 1 else -(-ticks // of.unit)


def _together(counts: Int64s) -> Iterator[slice]:
    """Windows whose rows are few enough to be looked at together."""
    start, ends = 0, np.cumsum(counts)
    while start < len(counts):
        upto = int(ends[start] - counts[start]) + _CANDIDATES
        stop = max(start + 1, int(np.searchsorted(ends, upto, "right")))
        yield slice(start, stop)
        start = stop


def reach_of(times: Int64s, offsets: Int64s) -> Int64s:
    """For each whole block of rows the latest time of the entity of its last row, from its first row up to this row."""
    blocks = len(times) // BLOCK
    reach = times[: blocks * BLOCK].reshape(blocks, BLOCK).max(1)
    last = np.arange(1, blocks + 1) * BLOCK - 1
    entity = np.searchsorted(offsets, last, "right") - 1
    begins = offsets[entity] > last - BLOCK + 1  # the entity begins inside the block: the rows before are of others
    for block in np.flatnonzero(begins).tolist():
        reach[block] = times[offsets[entity[block]] : last[block] + 1].max()
    first = np.flatnonzero(np.append(True, entity[1:] != entity[:-1])[:blocks])
    for start, stop in zip(first.tolist(), [*first[1:].tolist(), blocks]):
        np.maximum.accumulate(reach[start:stop], out=reach[start:stop])
    return reach


def apart_of(times: Int64s) -> int:
    """The greatest common divisor of all differences between times; 0 if all times are equal."""
    found = 0
    for start in range(0, len(times), _CANDIDATES):
        apart = np.abs(times[start : start + _CANDIDATES] - times[0])
        if found:
            apart = apart[apart % found != 0]
        if len(apart):
            found = int(np.gcd.reduce(apart, initial=found))
        if found == 1:
            break
    return found
