"""Gaps in time: where runs end, and the warnings when gaps cost windows."""

import warnings
from typing import Literal, get_args

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration
from tensorstash.errors import DataError, NoWindowError
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals, windows_in
from tensorstash.windows.runs import Runs, entity_runs, find_runs
from tensorstash.windows.slots import Slots

Gaps = Literal["split", "mask", "ignore"]

_COSTLY = 0.1  # share of the windows
_MOST_TICKS = 1 << 62


def fragments(stash: Stash, gaps: str, frequency: Duration | None, tolerance: Duration | None) -> Runs:
    """The stretches of rows in which no time step is missing; whole entities if gaps are ignored."""
    if gaps not in get_args(Gaps):
        raise ValueError(f'gaps must be "split", "mask" or "ignore", got {gaps!r}.')
    if gaps == "mask" and stash.time is None:
        raise ValueError("gaps='mask' needs times, and this stash has none. Load it with time=.")
    if stash.time is None or gaps == "ignore":
        if frequency is not None or tolerance is not None:
            why = "with gaps='ignore'" if gaps == "ignore" else "for a stash without times"
            raise ValueError(f"frequency and tolerance must be left out {why}.")
        return entity_runs(stash.offsets.numpy())
    if stash.info.time is not None and stash.info.time.repeated:
        raise DataError(
            f"gaps={gaps!r} counts steps of time, and this stash has entities with several rows of one time. Take "
            "gaps='ignore': windows of consecutive rows."
        )
    first, last = stash.time_range
    if first is not None and last is not None and last - first > _MOST_TICKS:
        raise DataError(
            f"Times must lie within 2**62 ticks of each other, got {stash.clock.format(first)} to "
            f"{stash.clock.format(last)}. Leave such rows out with filter=, or take gaps='ignore'."
        )
    return find_runs(stash.offsets.numpy(), stash.time.numpy(), stash.clock, frequency, tolerance)


def steps_text(runs: Runs) -> str:
    """The frequency and the most common other steps, for messages about gaps."""
    if runs.frequency is None:
        return ""
    common = ", ".join(f"{step} ({count:,} times)" for step, count in runs.steps)
    return f" at frequency {runs.frequency.text!r}" + (f"; the most common other steps are {common}" if common else "")


def too_short(runs: Runs, lengths: Int64s, needed: int, units: str) -> NoWindowError:
    """The error if no run, of these lengths, holds a window."""
    remedy = "Shorten history or horizon, or see frequency= and gaps=."
    if runs.frequency is not None and 2 * len(runs.rows) > runs.rows.sum():  # most rows do not follow the row before
        remedy = (
            "Times without a regular step, such as events, need gaps='ignore': windows of consecutive rows, or spans "
            "in time, ts.During. See docs/guide/events.md."
        )
    return NoWindowError(
        f"A window is {needed} consecutive {units} of one run; the longest of {len(lengths):,} runs has "
        f"{int(lengths.max(initial=0)):,}{steps_text(runs)}. {remedy}"
    )


def warn_of_gaps(stash: Stash, runs: Runs, slots: Slots, windows: Intervals, length: int) -> bool:
    """Warn if gaps cost many windows, which is returned, or make more empty slots than there are rows."""
    whole = entity_runs(stash.offsets.numpy())
    possible = int(windows_in(whole.rows, length, windows.stride).sum())
    if costly := len(windows) < (1 - _COSTLY) * possible:
        warnings.warn(
            f"Gaps cost {1 - len(windows) / possible:.0%} of the windows: {len(windows):,} of {possible:,} are left"
            f"{steps_text(runs)}. If these are not gaps, give the frequency=, such as '1bd' for business days, a "
            "tolerance=, or gaps='ignore'; if they are, shorter windows lose fewer.",
            stacklevel=3,
        )
    runs_begin = int(np.count_nonzero(~slots.joined))
    empty = slots.total - stash.rows - (slots.lead + slots.tail) * runs_begin
    if empty > stash.rows:
        warnings.warn(
            f"Gaps make more empty slots than there are rows: {empty:,} and {stash.rows:,}{steps_text(runs)}. Give the "
            "frequency=, take gaps='split', or leave windows without observations out with require=.",
            stacklevel=3,
        )
    return costly
