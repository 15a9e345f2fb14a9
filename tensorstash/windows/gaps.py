"""Gaps in time: where runs end, and warnings of windows lost to gaps or to too few rows."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from tensorstash.common.calendar import Calendar, GivenStep, Step
from tensorstash.common.checks import one_of, shown
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, written
from tensorstash.errors import DataError, NoWindowError
from tensorstash.stash.stash import Stash
from tensorstash.windows.align import align_text, aligned
from tensorstash.windows.gap_causes import remedy_of
from tensorstash.windows.intervals import Intervals, drop, intervals, windows_in
from tensorstash.windows.placement import Placement
from tensorstash.windows.require import Required, incomplete
from tensorstash.windows.runs import Runs, entity_runs, find_runs, step_of
from tensorstash.windows.selection import complete
from tensorstash.windows.slots import run_edges
from tensorstash.windows.splits import per_entity

Gaps = Literal["split", "mask", "ignore"]

_COSTLY = 0.1  # share of the windows
_MOST_TICKS = 1 << 62


def fragments(
    stash: Stash, gaps: str, frequency: GivenStep | Step | None, tolerance: Duration | None, *, counted: bool
) -> Runs:
    """Consecutive rows without a missing time step; whole entities if gaps are ignored, or not `counted`."""
    gaps = one_of(gaps, get_args(Gaps), "gaps")
    if not counted:
        return entity_runs(stash.offsets.numpy())
    if stash.known is not None:
        raise ValueError(
            f"A slot holds one row, and this stash has versions of a time, with known times {stash.known_name!r}. Take "
            "spans in time: ts.During(...)."
        )
    if gaps == "mask" and stash.time is None:
        raise ValueError("gaps='mask' needs times, and this stash has none. Load it with time=.")
    if stash.time is None or gaps == "ignore":
        if frequency is not None or tolerance is not None:
            why = "with gaps='ignore'" if gaps == "ignore" else "for a stash without times"
            raise ValueError(f"frequency and tolerance must be left out {why}.")
        return entity_runs(stash.offsets.numpy())
    if stash.info.time is not None and stash.info.time.duplicates:
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
    step = step_of(stash, frequency, tolerance)
    return find_runs(stash.offsets.numpy(), stash.time.numpy(), stash.clock, step, tolerance)


def check_no_slots(
    gaps: str,
    frequency: GivenStep | Step | None,
    tolerance: Duration | None,
    min_history: int | None,
    min_horizon: int | None,
) -> None:
    """Raise `ValueError` for arguments about slots; windows of spans in time alone have none."""
    masked = "mask" if gaps == "mask" else None
    given = {
        "frequency": frequency,
        "tolerance": tolerance,
        "gaps": masked,
        "min_history": min_history,
        "min_horizon": min_horizon,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={shown(value)} is about slots, and windows of spans in time alone have none. Leave it out; "
                "for a least number of rows see min_rows= of ts.During."
            )


def _steps_text(runs: Runs) -> str:
    """The frequency and the most common other steps, for messages about gaps."""
    if runs.frequency is None:
        return ""
    text = runs.frequency.text
    common = ", ".join(f"{step} ({count:,} times)" for step, count in runs.steps)
    where = f"in a {text}" if isinstance(runs.frequency, Calendar) else f"at frequency {text!r}"
    return f" {where}" + (f"; the most common other steps are {common}" if common else "")


def with_fewer(placement: Placement) -> str:
    """The arguments that allow windows with fewer rows."""
    return " or ".join(["min_history="] * (placement.history > 0) + ["min_horizon="] * (placement.horizon > 0))


def _too_short(placement: Placement, runs: Runs) -> NoWindowError:
    """The error if no run is as long as a window."""
    slots, (starts, stops) = placement.slots, run_edges(placement.slots)
    padding, units = slots.lead + slots.tail, "rows" if placement.fills is None else "slots"
    least, fewer = placement.length - padding, with_fewer(placement)
    needed, give = f"Windows need {least:,} consecutive {units}", "give"
    if padding:
        needed, give = (
            f"Windows need {least:,} of their {placement.length:,} slots in one run, see {fewer}",
            "give a lower",
        )
    remedy, known = f"Shorten history or horizon, {give} {fewer}, or see frequency= and gaps=.", ""
    mostly_gaps = 2 * len(runs.rows) > runs.rows.sum()
    if runs.frequency is not None and mostly_gaps:
        remedy = (
            "Times without a regular step, such as events, need gaps='ignore': windows of consecutive rows, or spans "
            "in time, ts.During. See docs/guide/events.md."
        )
        if runs.steps and 2 * runs.steps[0][1] > runs.rows.sum():
            remedy = known = f"Most steps are {runs.steps[0][0]}: give it as frequency=."
    remedy = known or remedy_of(placement.stash, runs, least) or remedy
    return NoWindowError(
        f"{needed}; the longest of {len(starts):,} runs has "
        f"{int((stops - starts).max(initial=padding)) - padding:,}{_steps_text(runs)}. {remedy}"
    )


def all_windows(
    placement: Placement, runs: Runs, judged: Sequence[Required], stride: int, *, may_forecast: bool
) -> Placement:
    """Every window that lacks no required value; raises `NoWindowError`, and warns if many windows are lost.

    With `may_forecast`, no whole window is needed if a run holds the history of a window that starts after it.
    """
    starts, stops = run_edges(placement.slots)
    unaligned = replace(
        placement, intervals=intervals(starts, windows_in(stops - starts, placement.length, stride), stride)
    )
    if not len(unaligned):
        if may_forecast and int((stops - starts).max(initial=0)) >= placement.history + placement.slots.tail:
            return unaligned
        raise _too_short(placement, runs)
    warned = _warn_of_gaps(unaligned, runs)
    whole = aligned(unaligned)
    if not len(whole):
        if may_forecast:
            return whole
        raise NoWindowError(
            f"align= keeps the windows whose anchor is a whole number of strides from it; with stride {stride}"
            f"{align_text(whole)} there is none. Give another time, a lower stride=, or align='end'."
        )
    kept = replace(whole, intervals=complete(whole, judged))
    told = _warn_of_require(kept, whole, judged)
    _warn_of_absent(kept, whole.intervals, unaligned, without_gaps=warned, without_require=told)
    return kept


def _warn_of_gaps(placement: Placement, runs: Runs) -> bool:
    """Warn if gaps make more empty slots than there are rows, or cost many windows; returns whether they do."""
    windows, slots, rows = placement.intervals, placement.slots, placement.stash.rows
    possible = int(windows_in(entity_runs(placement.offsets).rows, placement.length, windows.stride).sum())
    known = ""
    if costly := len(windows) < (1 - _COSTLY) * possible:
        known = remedy_of(placement.stash, runs, placement.length - slots.lead - slots.tail)
        remedy = known or (
            "If these are not gaps, give the frequency=, such as '1bd' for business days, a tolerance=, or "
            "gaps='ignore'; if they are, shorter windows lose fewer."
        )
        apart = _left_out(placement)  # whose steps are no gaps
        warnings.warn(
            f"Gaps cost {1 - len(windows) / possible:.0%} of the windows: {len(windows):,} of {possible:,} are left"
            f"{_steps_text(replace(runs, steps=()) if apart else runs)}.{apart} {remedy}",
            stacklevel=6,
        )
    empty = slots.total - rows - (slots.lead + slots.tail) * int(np.count_nonzero(~slots.joined))
    if empty > rows:
        known = known or remedy_of(placement.stash, runs, 1)
        remedy = known or (
            "Give the frequency=, take gaps='split', or leave windows without observations out with require=."
        )
        warnings.warn(
            f"Gaps make more empty slots than there are rows: {empty:,} and {rows:,}{_steps_text(runs)}. {remedy}",
            stacklevel=6,
        )
    return costly


def _left_out(placement: Placement) -> str:
    """The entities that gaps leave without a window, as a sentence after another one; most often another step."""
    slots, rows = placement.slots, np.diff(placement.offsets)
    counts = per_entity(placement)["count"]
    absent = np.flatnonzero((counts == 0) & (rows >= max(2, placement.length - slots.lead - slots.tail)))
    if not len(absent):
        return ""
    return (
        f" {len(absent):,} of {np.count_nonzero(rows):,} entities have no window left, such as "
        f"{placement.stash.entities[absent[0]]!r} with steps of {_other_step(placement, absent[0])}; load series of "
        "another step apart."
    )


def _warn_of_require(placement: Placement, before: Placement, judged: Sequence[Required]) -> bool:
    """Warn if `require=` leaves out many of the windows that were there before; returns whether it does."""
    kept, every = len(placement), len(before)
    if kept >= (1 - _COSTLY) * every:
        return False
    alone = {asked.span.name: every - len(drop(before.intervals, *incomplete(before, [asked]))) for asked in judged}
    worst = max(alone, key=lambda name: alone[name])
    more = f" {worst!r} alone costs {alone[worst]:,}." if len(alone) > 1 else ""
    had, has = (per_entity(each)["count"] > 0 for each in (before, placement))
    if (had & ~has).any():
        name = placement.stash.entities[(had & ~has).argmax()]
        more += f" {np.count_nonzero(had & ~has):,} of {len(had):,} entities have no window left, such as {name!r}."
    what = "missing values" if placement.fills is None else "missing values and empty slots"
    warnings.warn(
        f"require= leaves out {1 - kept / every:.0%} of the windows, because of {what}: {kept:,} of {every:,} are left."
        f"{more} Shorter windows lose fewer, and fewer names or lower shares in require= too; fill= turns missing "
        "values into data.",
        stacklevel=6,
    )
    return True


def _warn_of_absent(
    placement: Placement, before_require: Intervals, unaligned: Placement, *, without_gaps: bool, without_require: bool
) -> None:
    """Warn of entities that have rows but no window, with an example of each reason that no other warning has given."""
    slots = placement.slots
    if placement.intervals is before_require and len(before_require.guide.base) == np.count_nonzero(~slots.joined):
        return  # each run has windows
    counts, rows = per_entity(placement)["count"], np.diff(placement.offsets)
    absent = np.flatnonzero((counts == 0) & (rows > 0))
    needed = max(1, placement.length - slots.lead - slots.tail)
    is_incomplete = per_entity(replace(placement, intervals=before_require))["count"][absent] > 0
    is_off = ~is_incomplete & (per_entity(unaligned)["count"][absent] > 0)
    is_short = ~is_incomplete & (rows[absent] < needed)
    short, lost = absent[is_short], absent[:0] if without_require else absent[is_incomplete]
    apart = absent[:0] if without_gaps else absent[~is_incomplete & ~is_short & ~is_off]
    off = absent[is_off]
    reasons, entities = [], placement.stash.entities
    if len(short):
        reasons.append(
            f"{len(short):,} with too few rows, such as {entities[short[0]]!r} with {rows[short[0]]:,} of {needed:,} "
            f"(shorten the window, or give {with_fewer(placement)})"
        )
    if len(apart):
        assert slots.frequency is not None
        reasons.append(
            f"{len(apart):,} with gaps or another step of time than {slots.frequency.text!r}, such as "
            f"{entities[apart[0]]!r} with steps of {_other_step(placement, apart[0])} (load these series apart, or see "
            "frequency= and gaps=)"
        )
    if len(off):
        reasons.append(
            f"{len(off):,} without an anchor at a stride from the time of align=, such as {entities[off[0]]!r} (lower "
            "stride=, or take align='end')"
        )
    if len(lost):
        name = entities[lost[0]]
        reasons.append(f"{len(lost):,} with missing values that require= does not allow, such as {name!r}")
    if reasons:
        total, every = len(short) + len(apart) + len(off) + len(lost), np.count_nonzero(rows)
        warnings.warn(f"{total:,} of {every:,} entities have no window: {'; '.join(reasons)}.", stacklevel=6)


def _other_step(placement: Placement, entity: np.int64) -> str:
    """The most common step of an entity that is not the frequency."""
    assert placement.slots.frequency is not None
    times = placement.times[placement.offsets[entity] : placement.offsets[entity + 1]]
    gaps: Int64s = np.diff(times)[~placement.slots.frequency.follows(times[:-1], times[1:])]
    steps, counts = np.unique(gaps, return_counts=True)
    return str(written(int(steps[counts.argmax()]), placement.stash.clock))
