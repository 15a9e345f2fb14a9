"""The folds of a backtest."""

from datetime import timedelta
from typing import SupportsIndex, cast

import numpy as np

from tensorstash.common.checks import at_least, flag, is_integer
from tensorstash.common.frequency import Duration, Frequency, frequency, is_zero
from tensorstash.errors import DataError
from tensorstash.stash.stash import Stash
from tensorstash.windows.known_ahead import warn_of_missing
from tensorstash.windows.placement import Placement
from tensorstash.windows.shift import FARTHEST, Shift
from tensorstash.windows.slots import run_edges, times_at
from tensorstash.windows.splits import between, check_intervals, check_timed, cut_at, first_slots

Length = SupportsIndex | str | timedelta  # of time: slots, or a duration


def folds(
    placement: Placement, count: SupportsIndex, step: Length, gap: Length, *, expanding: bool
) -> list[tuple[Placement, Placement]]:
    """The training and the test windows of each fold, the earliest fold first."""
    check_timed(placement.stash, "folds")
    check_intervals(placement, "folds", "Cut with split.")
    if any(time_span.is_ahead for time_span in placement.time_spans):
        raise ValueError("folds go by slots, and a span in time of these windows reaches into the future. Use split.")
    expanding = flag(expanding, "expanding")
    number, by = at_least(1, count, "count"), _shift(placement, step, 1, "step")
    pause = _shift(placement, gap, 0, "gap")
    _check_length(by, number, f"{number} x step={step!r}")
    _check_length(pause, 1, f"gap={gap!r}")
    start, stop = _anchor_range(placement)
    anchor = placement.history + placement.label_offset
    made = []
    for k in range(number):
        cut = _moved(stop, by, k - number)
        times = _moved(start, by, k), _moved(cut, pause, -1), cut, _moved(stop, by, k + 1 - number)
        train_start, train_stop, low, high = (first_slots(placement, cut_at(placement, time)) for time in times)
        train = between(placement, None if expanding else train_start, train_stop, anchor, placement.length - 1)
        test = between(placement, low, high, anchor, anchor)
        for part, name in ((train, "training"), (test, "test")):
            if not len(part):
                form = placement.stash.clock.format
                raise DataError(
                    f"A fold must have windows in both parts; fold {k} of {number}, with its cut at {form(cut)}, has "
                    f"no {name} window. Anchors lie in [{form(start)}, {form(stop)}). Take fewer folds, or another "
                    "step= or gap=."
                )
        made.append((train, test))
    warn_of_missing([(f"The test part of fold {k} of {number}", *pair) for k, pair in enumerate(made)])
    return made


def _moved(time: int, by: Shift, times: int) -> int:
    moved = by.step.advance_one(time, by.steps * times)
    if moved is None:
        far = "after" if by.steps * times > 0 else "before"
        raise DataError(
            f"The cuts of folds must be times that fit into 64 bits; {abs(by.steps * times):,} x {by.step.text!r} "
            f"{far} {by.step.clock.format(time)} does not. Convert the times to a coarser unit, or leave rows so far "
            "away out with filter=."
        )
    return moved


def _shift(placement: Placement, length: Length, least: int, what: str) -> Shift:
    """A number of slots, each a step of the frequency, or a duration as polars writes it."""
    clock, slot_step = placement.stash.clock, placement.slots.frequency
    if not least and is_zero(length):
        return Shift(str(length), Frequency("", "ticks", 1, 0, clock), 0)
    if not is_integer(length):
        return Shift(str(length), frequency(cast("Duration", length), clock, None, what), 1)
    slots = at_least(least, length, what)
    if slot_step is None and slots:
        raise ValueError(
            f"{what} in slots needs the step of time, which gaps='ignore' and spans in time alone lack. Give a "
            "duration."
        )
    return Shift(str(length), slot_step or _tick(placement.stash), slots)


def _tick(stash: Stash) -> Frequency:
    return Frequency("1 tick", "ticks", 1, 0, stash.clock)


def _check_length(shift: Shift, times: int, text: str) -> None:
    if times * shift.most_ticks > FARTHEST:
        raise ValueError(
            f"The cuts of folds must lie within 2**61 ticks before the last anchor; {text} is longer. Take fewer "
            "folds, or a shorter step= or gap=."
        )


def _anchor_range(placement: Placement) -> tuple[int, int]:
    """The time of the first anchor, and that of the slot after the last anchor with a whole horizon."""
    windows = placement.intervals
    run_starts, run_stops = run_edges(placement.slots)
    first, first_ids = windows.first, windows.first_ids
    run = np.searchsorted(run_starts, first, "right") - 1
    whole = (run_stops[run] - placement.slots.tail - placement.length - first) // windows.stride + 1
    last = first + windows.stride * (np.minimum(whole, windows.guide.ends - first_ids) - 1)
    anchor, step = placement.history + placement.label_offset, placement.slots.frequency
    first_times = times_at(placement.slots, placement.times, first + anchor)
    last_times = times_at(placement.slots, placement.times, last[whole > 0] + anchor)
    if not len(last_times):
        raise DataError("Folds need windows with a whole horizon; none of these windows has one.")
    newest = int(last_times.max())
    return int(first_times.min()), _moved(newest, Shift("", step or _tick(placement.stash), 1), 1)
