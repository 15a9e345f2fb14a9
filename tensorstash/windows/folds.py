"""The folds of a backtest."""

from datetime import timedelta
from functools import partial
from typing import Literal, SupportsIndex, cast

import numpy as np

from tensorstash.common.calendar import Step
from tensorstash.common.checks import at_least, flag, is_integer, one_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, Frequency, frequency, is_zero
from tensorstash.errors import DataError
from tensorstash.windows.cuts import AFTER_ALL, BEFORE_ALL, between, cut_at, cut_at_slots, first_slots, slots_of_rows
from tensorstash.windows.known_ahead import warn_of_missing
from tensorstash.windows.latest import last_rows
from tensorstash.windows.placement import Placement
from tensorstash.windows.shift import FARTHEST, Shift
from tensorstash.windows.slots import run_edges, times_at
from tensorstash.windows.splits import check_divisible, check_intervals, check_timed

Length = SupportsIndex | str | timedelta  # of time: slots, or a duration
Per = Literal["entity"]
Move = tuple[Shift, int]  # a length of time, and how many of it


def folds(
    placement: Placement,
    count: SupportsIndex,
    step: Length,
    gap: Length,
    *,
    expanding: bool,
    per: Per | None,
    of: str | None,
) -> list[tuple[Placement, Placement]]:
    """The training and the test windows of each fold, the earliest fold first."""
    per, in_slots = one_of(per, (None, "entity"), "per"), is_integer(step) and (is_integer(gap) or is_zero(gap))
    are_rows = per is not None and in_slots  # where there is no step of time
    if not are_rows:
        check_timed(placement.stash, "folds")
    check_intervals(placement, "folds", "Cut with split.")
    check_divisible(placement, "A fold")
    if any(time_span.is_ahead for time_span in placement.time_spans):
        raise ValueError("folds go by slots, and a span in time of these windows reaches into the future. Use split.")
    expanding = flag(expanding, "expanding")
    number = at_least(1, count, "count")
    by = _shift(placement, step, number, "step", are_rows=are_rows)
    pause = _shift(placement, gap, 1, "gap", are_rows=are_rows)
    first, last = _anchors(placement, per, of)
    behind = Shift("", _step_of(placement), 1), 1
    if placement.stash.time is not None:  # the last cut must be a time that fits
        _moved(times_at(placement.slots, placement.times, last[last >= 0]), *behind)
    cut = partial(_cut, placement, in_slots=in_slots)
    anchor, made = placement.history + placement.label_offset, []
    for k in range(number):
        start, stop = cut(first, (by, k)), cut(last, behind, (by, k - number), (pause, -1))
        low, high = cut(last, behind, (by, k - number)), cut(last, behind, (by, k - number + 1))
        train = between(placement, None if expanding else start, stop, anchor, placement.length - 1)
        test = between(placement, low, high, anchor, anchor)
        for part, name in ((train, "training"), (test, "test")):
            if not len(part):
                raise DataError(
                    f"A fold must have windows in both parts; fold {k} of {number} has no {name} window. Take "
                    "fewer folds, or another step= or gap=."
                )
        made.append((train, test))
    warn_of_missing([(f"The test part of fold {k} of {number}", *pair) for k, pair in enumerate(made)])
    return made


def _cut(placement: Placement, slots: Int64s, *moves: Move, in_slots: bool) -> Int64s:
    """The first slot of each run after the cut some lengths of time after a slot of each entity, or of one for all."""
    if in_slots:
        cut = cut_at_slots(placement, slots, sum(length.steps * count for length, count in moves))
        return first_slots(placement, cut)
    moments, known = np.full(len(slots), BEFORE_ALL), slots >= 0
    moved = times_at(placement.slots, placement.times, slots[known])
    for move in moves:
        moved = _moved(moved, *move)
    moments[known] = moved
    return first_slots(placement, cut_at(placement, moments))


def _moved(times: Int64s, by: Shift, count: int) -> Int64s:
    for time in (int(times.min()), int(times.max())):
        if by.step.advance_one(time, by.steps * count) is None:
            far = "after" if by.steps * count > 0 else "before"
            raise DataError(
                f"The cuts of folds must be times that fit into 64 bits; {abs(by.steps * count):,} x {by.step.text!r} "
                f"{far} {by.step.clock.format(time)} does not. Convert the times to a coarser unit, or leave rows so "
                "far away out with filter=."
            )
    return by.moved(times, count)


def _shift(placement: Placement, length: Length, times: int, what: str, *, are_rows: bool) -> Shift:
    """A number of slots, each a step of the frequency or a row, or a duration as polars writes it.

    Cuts may be so many `times` that length away from the last anchor.
    """
    step = _step_of(placement)
    if what == "gap" and is_zero(length):
        shift = Shift(str(length), step, 0)
    elif not is_integer(length):
        shift = Shift(str(length), frequency(cast("Duration", length), placement.stash.clock, None, what), 1)
    else:
        shift = Shift(str(length), step, at_least(int(what == "step"), length, what))
        if placement.slots.frequency is None and shift.steps and not are_rows:
            raise ValueError(
                f"{what} in slots needs the step of time, which gaps='ignore' and spans in time alone lack. Give a "
                "duration, or per='entity' and all lengths in slots, which are then rows."
            )
    if times * shift.most_ticks > FARTHEST:
        raise ValueError(
            f"The cuts of folds must lie within 2**61 ticks before the last anchor; {times} x {what}={length!r} is "
            "longer. Take fewer folds, or a shorter step= or gap=."
        )
    return shift


def _step_of(placement: Placement) -> Step:
    """The step of time, or a tick where there is none."""
    return placement.slots.frequency or Frequency("1 tick", "ticks", 1, 0, placement.stash.clock)


def _anchors(placement: Placement, per: Per | None, of: str | None) -> tuple[Int64s, Int64s]:
    """The slots of the first anchor and of the last one with a whole horizon, which ends with a value of a column.

    Those of each entity, `(entities,)`, -1 where there is none; or the earliest and the newest of all, both `(1,)`.
    """
    windows, slots = placement.intervals, placement.slots
    run_starts, run_stops = run_edges(slots)
    ends = run_stops - slots.tail
    if of is not None:
        rows = last_rows(placement, of)
        if per is None:
            end = cut_at(placement, min(int(placement.times[rows[rows >= 0]].max(initial=BEFORE_ALL)) + 1, AFTER_ALL))
        else:
            end = cut_at_slots(placement, slots_of_rows(placement, rows), 1)
        ends = np.minimum(ends, first_slots(placement, end))
    first, first_ids = windows.first, windows.first_ids
    run = np.searchsorted(run_starts, first, "right") - 1
    whole = (ends[run] - placement.length - first) // windows.stride + 1
    last = first + windows.stride * (np.minimum(whole, windows.guide.ends - first_ids) - 1)
    anchor, found = placement.history + placement.label_offset, np.flatnonzero(whole > 0)
    if not len(found):
        before = "" if of is None else f" before the last value of {of!r}"
        raise DataError(f"Folds need windows with a whole horizon{before}; none of these windows has one.")
    first, last = first + anchor, last[found] + anchor
    if per is None:
        first_times, last_times = (times_at(slots, placement.times, each) for each in (first, last))
        return first[[first_times.argmin()]], last[[last_times.argmax()]]
    entities, edges = placement.window_entities(first_ids), np.full((2, len(placement.offsets) - 1), -1)
    edges[0, entities[::-1]] = first[::-1]  # of several, the last one that is assigned stays
    edges[1, entities[found]] = last
    return edges[0], edges[1]
