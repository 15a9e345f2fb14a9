"""Gaps in time: where runs end, and warnings of windows lost to gaps or to too few rows."""

import warnings
from typing import Literal, get_args

import numpy as np

from tensorstash.common.checks import one_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, describe_step
from tensorstash.errors import DataError, NoWindowError
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals, count_before, windows_in
from tensorstash.windows.placement import Placement
from tensorstash.windows.runs import Runs, entity_runs, find_runs
from tensorstash.windows.splits import entity_edges

Gaps = Literal["split", "mask", "ignore"]

_COSTLY = 0.1  # share of the windows
_MOST_TICKS = 1 << 62


def fragments(
    stash: Stash, gaps: str, frequency: Duration | None, tolerance: Duration | None, *, counted: bool
) -> Runs:
    """The stretches of rows in which no time step is missing; whole entities if gaps are ignored or not counted."""
    gaps = one_of(gaps, get_args(Gaps), "gaps")
    if not counted:
        return entity_runs(stash.offsets.numpy())
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


def _steps_text(runs: Runs) -> str:
    """The frequency and the most common other steps, for messages about gaps."""
    if runs.frequency is None:
        return ""
    common = ", ".join(f"{step} ({count:,} times)" for step, count in runs.steps)
    return f" at frequency {runs.frequency.text!r}" + (f"; the most common other steps are {common}" if common else "")


def too_short(runs: Runs, lengths: Int64s, needed: int, units: str) -> NoWindowError:
    """The error for runs of these lengths if none is as long as a window."""
    remedy = "Shorten history or horizon, or see frequency= and gaps=."
    if runs.frequency is not None and 2 * len(runs.rows) > runs.rows.sum():  # most rows do not follow the row before
        remedy = (
            "Times without a regular step, such as events, need gaps='ignore': windows of consecutive rows, or spans "
            "in time, ts.During. See docs/guide/events.md."
        )
        if runs.steps and 2 * runs.steps[0][1] > runs.rows.sum():
            remedy = f"Most steps are {runs.steps[0][0]}: leave frequency= out."
    return NoWindowError(
        f"A window is {needed} consecutive {units} of one run; the longest of {len(lengths):,} runs has "
        f"{int(lengths.max(initial=0)):,}{_steps_text(runs)}. {remedy}"
    )


def warn_of_gaps(placement: Placement, runs: Runs) -> bool:
    """Warn if gaps make more empty slots than there are rows, or cost many windows; returns whether they do."""
    windows, slots, rows = placement.intervals, placement.slots, placement.stash.rows
    possible = int(windows_in(entity_runs(placement.offsets).rows, placement.length, windows.stride).sum())
    if costly := len(windows) < (1 - _COSTLY) * possible:
        warnings.warn(
            f"Gaps cost {1 - len(windows) / possible:.0%} of the windows: {len(windows):,} of {possible:,} are left"
            f"{_steps_text(runs)}. If these are not gaps, give the frequency=, such as '1bd' for business days, a "
            "tolerance=, or gaps='ignore'; if they are, shorter windows lose fewer.",
            stacklevel=3,
        )
    empty = slots.total - rows - (slots.lead + slots.tail) * int(np.count_nonzero(~slots.joined))
    if empty > rows:
        warnings.warn(
            f"Gaps make more empty slots than there are rows: {empty:,} and {rows:,}{_steps_text(runs)}. Give the "
            "frequency=, take gaps='split', or leave windows without observations out with require=.",
            stacklevel=3,
        )
    return costly


def warn_of_absent(placement: Placement, before_require: Intervals, *, without_gaps: bool) -> None:
    """Warn of entities that have rows but no window, with an example of each reason but gaps if `without_gaps`."""
    slots = placement.slots
    if placement.intervals is before_require and len(before_require.base) == np.count_nonzero(~slots.joined):
        return  # each run has windows
    edges, rows = entity_edges(placement), np.diff(placement.offsets)
    counts = np.diff(count_before(placement.intervals, edges))
    absent = np.flatnonzero((counts == 0) & (rows > 0))
    needed = max(1, placement.length - slots.lead - slots.tail)
    is_incomplete = np.diff(count_before(before_require, edges))[absent] > 0
    is_short = ~is_incomplete & (rows[absent] < needed)
    short, incomplete = absent[is_short], absent[is_incomplete]
    apart = absent[:0] if without_gaps else absent[~is_incomplete & ~is_short]
    reasons, entities = [], placement.stash.entities
    if len(short):
        reasons.append(
            f"{len(short):,} with too few rows, such as {entities[short[0]]!r} with {rows[short[0]]:,} of {needed:,} "
            "(shorten the window, or give min_history=)"
        )
    if len(apart):
        assert slots.frequency is not None
        reasons.append(
            f"{len(apart):,} with gaps or another step of time than {slots.frequency.text!r}, such as "
            f"{entities[apart[0]]!r} with steps of {_other_step(placement, apart[0])} (load these series apart, or see "
            "frequency= and gaps=)"
        )
    if len(incomplete):
        name = entities[incomplete[0]]
        reasons.append(f"{len(incomplete):,} with missing values that require= does not allow, such as {name!r}")
    if reasons:
        total, every = len(short) + len(apart) + len(incomplete), np.count_nonzero(rows)
        warnings.warn(f"{total:,} of {every:,} entities have no window: {'; '.join(reasons)}.", stacklevel=3)


def _other_step(placement: Placement, entity: np.int64) -> str:
    """The most common step of an entity that is not the frequency."""
    assert placement.slots.frequency is not None
    times = placement.times[placement.offsets[entity] : placement.offsets[entity + 1]]
    gaps: Int64s = np.diff(times)[~placement.slots.frequency.follows(times[:-1], times[1:])]
    steps, counts = np.unique(gaps, return_counts=True)
    return describe_step(int(steps[counts.argmax()]), placement.stash.clock)
