"""What gaps in time most likely are, for messages: each remedy has been tried on the times."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.clock import UTC_NAMES
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Frequency, frequency, written
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import gaps_at
from tensorstash.windows.runs import Runs

_MOST_ROWS = 1 << 21  # that remedies are tried on, the first ones
_SAMPLE = 1 << 16  # steps

Remedy = tuple[str, Int64s]  # what gaps are and how to avoid them, and the gaps that are left


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The gaps among the first rows of a stash."""

    times: Int64s
    first: Int64s  # the first row of each entity
    rows: Int64s  # the first row after each gap
    step: Frequency
    name: str  # of the time column

    def left_with(self, step: Frequency) -> Int64s:
        """The gaps with another step."""
        return gaps_at(self.times, self.first[1:] - 1, step)

    def longest(self, gaps: Int64s) -> int:
        """The rows of the longest run between gaps."""
        return int(np.diff(np.sort(np.append(self.first, gaps)), append=len(self.times)).max())


def remedy_of(stash: Stash, runs: Runs, needed: int) -> str:
    """What most gaps are, and what leaves a half of them at most and runs as long as needed; empty if not known."""
    if stash.time is None or runs.frequency is None:
        return ""
    if isinstance(runs.frequency, Calendar):
        return (
            "Leave times at which no series has a row out of the calendar, or take gaps='ignore', windows of "
            "consecutive rows."
        )
    times, offsets = stash.time.numpy()[:_MOST_ROWS], stash.offsets.numpy()
    first = np.unique(offsets[offsets < len(times)])
    rows = np.setdiff1d(runs.first[runs.first < len(times)], first)
    gaps = _Gaps(times, first, rows, runs.frequency, str(stash.time_name))
    for text, left in chain(_weekends(gaps), _changes_of_the_clock(gaps), _jitter(gaps)) if len(rows) else ():
        if 2 * len(left) <= len(rows) and gaps.longest(left) >= needed:
            return text
    return ""


def _weekends(gaps: _Gaps) -> Iterator[Remedy]:
    ignored, empty = "take gaps='ignore', windows of consecutive rows", "which has empty slots there."
    if gaps.step.kind == "business days" and 10 * len(gaps.rows) <= len(gaps.times):  # holidays are few
        yield f"If the gaps are holidays, {ignored}, or gaps='mask', {empty}", gaps.rows[:0]
    elif gaps.step.clock.unit is not None and gaps.step.least_ticks == gaps.step.clock.day:
        left = gaps.left_with(frequency("1bd", gaps.step.clock, None))
        yield "Most gaps are weekends: give frequency='1bd'.", left
        if 2 * len(left) <= len(gaps.rows):
            as_empty = f"or frequency='1bd' with gaps='mask', {empty}"
            yield f"Most gaps are weekends. '1bd' leaves others, such as holidays: {ignored}, {as_empty}", left[:0]


def _changes_of_the_clock(gaps: _Gaps) -> Iterator[Remedy]:
    """Local days as UTC, of which some are an hour shorter or longer; and local hours, of which some are skipped."""
    clock, step = gaps.step.clock, gaps.step
    if step.kind != "ticks" or clock.unit is None or clock.zone not in UTC_NAMES:
        return
    missing = gaps.times[gaps.rows - 1] + step.count
    longer = gaps.times[gaps.rows] - missing
    if step.count % clock.day == 0:
        utc = ".dt.replace_time_zone('UTC')" if clock.zone is None else ""
        zoned = f"frame.with_columns(pl.col({gaps.name!r}){utc}.dt.convert_time_zone('Europe/Berlin'))"
        text = "The gaps are changes of the clock: give the times their zone with polars, such as that of Berlin:"
        yield f"{text} {zoned}.", gaps.rows[np.abs(longer) != clock.day // 24]
    is_night = (missing % clock.day < clock.day // 4) & np.isin(missing // clock.day % 7, (1, 3))  # Fridays and Sundays
    skipped = is_night & (longer == clock.day // 24)
    if (np.diff(np.unique(missing[skipped] // clock.day)) > 300).all():  # days from one spring to the next, at least
        text = "The gaps are hours that the clock skips in spring: gaps='mask' has an empty slot there."
        yield text, gaps.rows[~skipped]


def _jitter(gaps: _Gaps) -> Iterator[Remedy]:
    """Steps that vary around their median."""
    steps = np.delete(np.diff(gaps.times), gaps.first[1:] - 1)
    steps = np.sort(steps[:: max(1, len(steps) // _SAMPLE)])
    median = int(steps[(len(steps) - 1) // 2])
    distances = np.sort(np.abs(steps - median))
    # the rarest steps may be gaps, and a few others are no jitter
    spreads = [int(distances[int((len(distances) - 1) * share)]) for share in (1.0, 0.999, 0.99, 0.9)]
    step, rounded = written(median, gaps.step.clock), [digit * 10**power for power in range(19) for digit in (1, 2, 5)]
    for spread in spreads if spreads[-1] else ():
        tolerance = next(ticks for ticks in rounded if ticks >= spread)
        if 2 * tolerance <= median:
            allowed = written(tolerance, gaps.step.clock)
            text = f"Steps vary around {step}: give frequency={step!r}, tolerance={allowed!r}."
            yield text, gaps.left_with(frequency(step, gaps.step.clock, allowed))
