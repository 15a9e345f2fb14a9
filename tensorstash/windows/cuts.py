"""Cuts: where windows are divided, each entity at a time of its own."""

from dataclasses import replace

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.native.guide import first_rows
from tensorstash.windows.intervals import keep
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import nearest_rows, run_edges, run_rows, slots_at, slots_from, steps_after

Cut = Int64s  # a time of each entity, `(entities,)`; in a stash without times the rows are the times

BEFORE_ALL, AFTER_ALL = -(1 << 63), (1 << 63) - 1


def cut_at(placement: Placement, moment: Int64s | int) -> Cut:
    """A cut at one time of all entities."""
    return np.broadcast_to(np.asarray(moment, np.int64), len(placement.offsets) - 1)


def rows_from_cut(placement: Placement, cut: Cut) -> Int64s:
    """The first row of each entity at or after a cut, or the row after its last one."""
    if placement.stash.time is None:
        return cut
    return first_rows(placement.times, placement.offsets[:-1], placement.offsets[1:], cut)


def cut_at_rows(placement: Placement, rows: Int64s) -> Cut:
    """A cut at the time of a row of each entity, which keeps rows of one time together; or before or after all rows."""
    if placement.stash.time is None:
        return rows
    first, stops = placement.offsets[:-1], placement.offsets[1:]
    moments = np.full(len(rows), BEFORE_ALL)
    inside, behind = (first <= rows) & (rows < stops), (rows == stops) & (first < stops)
    moments[inside] = placement.times[rows[inside]]
    last = placement.times[stops[behind] - 1]
    moments[behind] = last + (last < AFTER_ALL)
    return moments


def slots_of_rows(placement: Placement, rows: Int64s) -> Int64s:
    """The slot of a row of each entity; -1 for -1."""
    slots, known = rows.copy(), rows >= 0
    slots[known] = slots_at(placement.slots, rows[known])
    return slots


def cut_at_slots(placement: Placement, slots: Int64s, steps: int) -> Cut:
    """The cut that many slots after a slot of each entity, `(entities,)`, or of one for all, `(1,)`.

    Beyond the run of the slot it counts steps of time, or without them rows. A slot of -1 is before all rows.
    """
    within, which = placement.slots, np.flatnonzero(slots >= 0)
    starts, stops = run_edges(within)
    runs, wanted = np.searchsorted(starts, slots[which], "right") - 1, slots[which] + steps
    inside = np.clip(wanted, starts[runs] + within.lead, stops[runs] - within.tail - 1)
    rows, beyond = nearest_rows(within, inside)
    beyond = beyond + wanted - inside
    if within.frequency is None:
        cut_rows = placement.offsets[:-1] - 1
        cut_rows[which] = np.clip(rows + beyond, cut_rows[which], placement.offsets[1:][which])
        return cut_at_rows(placement, cut_rows)
    times, moments = placement.times[rows], np.full(len(slots), BEFORE_ALL)
    moved = np.where(beyond == 0, times, steps_after(within, placement.times, rows, beyond))
    wrapped = (moved > times) | (times + beyond * float(within.frequency.least_ticks) < BEFORE_ALL)
    moments[which] = np.where((beyond < 0) & wrapped, BEFORE_ALL, moved)
    return cut_at(placement, moments)


def first_slots(placement: Placement, cut: Cut) -> Int64s:
    """The first slot of each run after a cut, or its end: `(runs,)`."""
    slots, (low, high) = placement.slots, run_rows(placement.slots, placement.stash.rows)
    entities = placement.entities_at(low)
    row = np.clip(rows_from_cut(placement, cut)[entities], low, high)
    _, stops = run_edges(slots)
    return slots_from(slots, placement.stash, (low, high, stops), row, cut[entities])


def between(placement: Placement, low: Int64s | None, high: Int64s | None, first: int, last: int) -> Placement:
    """The windows whose slot `first` is at or after `low` and whose slot `last` is before `high`; both count from 0."""
    starts, stops = run_edges(placement.slots)
    lowest = starts if low is None else np.clip(low - first, starts, stops)
    highest = stops if high is None else np.clip(high - last, lowest, stops)
    return replace(placement, intervals=keep(placement.intervals, lowest, highest))
