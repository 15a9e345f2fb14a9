"""Windows that are lost, to gaps in time, too few rows or missing values: the error if none is left, and warnings."""

from collections.abc import Sequence

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError
from tensorstash.windows.gap_causes import remedy_of
from tensorstash.windows.intervals import drop, windows_in
from tensorstash.windows.placement import Placement
from tensorstash.windows.require import Required, incomplete
from tensorstash.windows.runs import Runs, entity_runs
from tensorstash.windows.slots import run_edges
from tensorstash.windows.splits import per_entity

_COSTLY = 0.1  # share of the windows


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


def too_short(placement: Placement, runs: Runs) -> NoWindowError:
    """The error if no run is as long as a window."""
    slots, (starts, stops) = placement.slots, run_edges(placement.slots)
    padding, units = slots.lead + slots.tail, "rows" if placement.fills is None else "slots"
    least, rows = placement.length - padding, runs.rows.sum()
    remedy = remedy_of(placement.stash, runs, least)
    if runs.steps and 2 * runs.steps[0][1] > rows:
        remedy = f"Most steps are {runs.steps[0][0]}: give it as frequency=."
    elif not remedy and runs.frequency is not None and 2 * len(runs.rows) > rows:
        remedy = (
            "Times without a regular step, such as events, need gaps='ignore': windows of consecutive rows, or spans "
            "in time, ts.During. See docs/guide/events.md."
        )
    elif not remedy:
        give = "give a lower" if padding else "give"
        remedy = f"Shorten history or horizon, {give} {with_fewer(placement)}, or see frequency= and gaps=."
    return NoWindowError(
        f"Windows need {least:,} consecutive {units}; the longest of {len(starts):,} runs has "
        f"{int((stops - starts).max(initial=padding)) - padding:,}{_steps_text(runs)}. {remedy}"
    )


def warn_of_gaps(placement: Placement, runs: Runs) -> None:
    """Warn if gaps cost many windows, or make more empty slots than there are rows."""
    windows, slots, rows, needed = placement.intervals, placement.slots, placement.stash.rows, 1
    padding = slots.lead + slots.tail
    possible = int(windows_in(entity_runs(placement.offsets).rows, placement.length, windows.stride).sum())
    empty = slots.total - rows - padding * int(np.count_nonzero(~slots.joined))
    if len(windows) < (1 - _COSTLY) * possible:
        needed = placement.length - padding
        told = f"Gaps cost {1 - len(windows) / possible:.0%} of the windows: {len(windows):,} of {possible:,} are left"
        remedy = (
            "If these are not gaps, give the frequency=, such as '1bd' for business days, a tolerance=, or "
            "gaps='ignore'; if they are, shorter windows lose fewer."
        )
    elif empty > rows:
        told = f"Gaps make more empty slots than there are rows: {empty:,} and {rows:,}"
        remedy = "Give the frequency=, take gaps='split', or leave windows without observations out with require=."
    else:
        return
    remedy = remedy_of(placement.stash, runs, needed) or remedy
    warn(f"{told}{_steps_text(runs)}. {remedy}")


def warn_of_require(placement: Placement, before: Placement, judged: Sequence[Required]) -> None:
    """Warn if `require=` leaves out many of the windows that were there before, and name what costs most."""
    kept, every = len(placement), len(before)
    if kept >= (1 - _COSTLY) * every:
        return
    alone = {asked.span.name: every - len(drop(before.intervals, *incomplete(before, [asked]))) for asked in judged}
    worst = max(alone, key=lambda name: alone[name])
    more = f" {worst!r} alone costs {alone[worst]:,}." if len(alone) > 1 else ""
    warn(
        f"require= leaves out {1 - kept / every:.0%} of the windows, because of missing values or empty slots: "
        f"{kept:,} of {every:,} are left.{more} Shorter windows lose fewer, and fewer names or lower shares in "
        "require= too; fill= turns missing values into data."
    )


def warn_of_absent(kept: Placement, on_stride: Placement, every: Placement) -> None:
    """Warn of entities that have rows but no window, with an example of each reason.

    Of `every` window of the runs, strides count those `on_stride`, and `require=` has `kept` some of these.
    """
    slots = kept.slots
    if kept.intervals is on_stride.intervals and len(kept.intervals.guide.base) == np.count_nonzero(~slots.joined):
        return  # each run has windows
    rows, needed = np.diff(kept.offsets), max(1, kept.length - slots.lead - slots.tail)
    in_runs, aligns, has = (per_entity(windows)["count"] > 0 for windows in (every, on_stride, kept))
    step = slots.frequency and slots.frequency.text
    of_reasons = {
        f"with too few rows, of which windows need {needed:,} (shorten them, or give {with_fewer(kept)})": (
            ~in_runs & (rows > 0) & (rows < needed)
        ),
        f"with gaps or another step of time than {step!r} (load them separately, or see frequency= and gaps=)": (
            ~in_runs & (rows >= needed)
        ),
        f"without a window that the stride counts ({kept.strides.remedy})": in_runs & ~aligns,
        "with missing values that require= does not allow": aligns & ~has,
    }
    texts = [
        f"{np.count_nonzero(which):,} {reason}, such as {kept.stash.entity_at(int(which.argmax()))!r}"
        for reason, which in of_reasons.items()
        if which.any()
    ]
    if texts:
        count = np.count_nonzero(~has & (rows > 0))
        warn(f"{count:,} of {np.count_nonzero(rows):,} entities have no window: {'; '.join(texts)}.")
