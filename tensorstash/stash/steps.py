"""Steps of time between the rows of an entity, and the frequency that they tell, found by scans in blocks."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tensorstash.common.calendar import Calendar, Step
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, Frequency, inferred
from tensorstash.errors import DataError
from tensorstash.stash.header import CALENDAR

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash

_BLOCK = 1 << 18  # rows scanned at a time: the temporary arrays stay in the cache
_MOST_STEPS = 100_000  # distinct steps counted; beyond that the rarest are forgotten
MOST_TICKS = 1 << 62  # from the first time of the rows to the last one, in which steps are counted


def frequency_of(stash: "Stash") -> int | str | None:
    """The step of time that windows of all rows find, as users write it; `None` if a calendar or the rows tell none."""
    info = stash.info
    if info.frequency is not None or info.time is None or stash.time is None or CALENDAR in stash.segment.checksums:
        return info.frequency
    low, high = stash.time_range
    if info.known is not None or info.time.duplicates or low is None or high is None or high - low > MOST_TICKS:
        return None
    offsets = stash.offsets.numpy()
    rows = np.diff(offsets)
    if not (rows > 1).any():
        return None
    found, _ = infer(stash.time.numpy(), offsets[:-1][rows > 0][1:] - 1, stash.clock, None)
    if found.most_ticks > MOST_TICKS // 2:
        return None
    return int(found.text) if stash.clock.unit is None else found.text


def own_calendar(stash: "Stash") -> Calendar | None:
    """The calendar that a load was given, if it was given one."""
    if CALENDAR not in stash.segment.checksums:
        return None
    times = stash.segment.blob(CALENDAR).numpy()
    if not len(times) or (times[1:] <= times[:-1]).any():
        raise stash.segment.damaged("the times of its calendar do not ascend")
    return Calendar(times, stash.clock)


def check_in_calendar(calendar: Calendar, times: Int64s, offsets: Int64s, entity: Callable[[int], object]) -> None:
    """Raise `DataError` for a row at a time that is not in the calendar; `entity` names the series of a number."""
    for start in range(0, len(times), _BLOCK):
        has = calendar.has(times[start : start + _BLOCK])
        if not has.all():
            row = start + int(has.argmin())
            name, form = entity(int(np.searchsorted(offsets, row, "right")) - 1), calendar.clock.format
            who = "there is" if name is None else f"entity {name!r} has"
            ends = (form(int(calendar.times[k])) for k in (0, -1))
            raise DataError(
                f"Rows are at times of the calendar, frequency=, which goes from {' to '.join(ends)}; {who} a row at "
                f"{form(int(times[row]))}, which is not in it. Add that time, or leave such rows out with filter=."
            )


def gaps_at(times: Int64s, inner: Int64s, step: Step) -> Int64s:
    """The rows that do not follow the row before them, without the first rows of entities."""
    gaps = []
    for start in range(0, len(times) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(times) - 1)
        follows = step.follows(times[start:stop], times[start + 1 : stop + 1])
        follows[_within(inner, start, stop)] = True
        gaps.append(np.flatnonzero(~follows) + start + 1)
    return np.concatenate(gaps)


def _within(inner: Int64s, start: int, stop: int) -> Int64s:
    low, high = np.searchsorted(inner, (start, stop))
    return inner[low:high] - start


def infer(times: Int64s, inner: Int64s, clock: Clock, tolerance: Duration | None) -> tuple[Frequency, Int64s]:
    """The frequency that explains the most common step with the fewest gaps, and these gaps.

    A guess by the first rows that explains most steps is right, and saves a count of all.
    """
    pairs = len(times) - 1 - len(inner)
    guess = _most_common(times[: _BLOCK + 1], inner)
    tried = [(step, gaps_at(times, inner, step)) for step in inferred(guess, clock, tolerance)]
    best = min(tried, key=lambda pair: len(pair[1]))
    if 2 * len(best[1]) < pairs or (exact := _most_common(times, inner)) == guess:
        return best
    tried = [(step, gaps_at(times, inner, step)) for step in inferred(exact, clock, tolerance)]
    return min(tried, key=lambda pair: len(pair[1]))


def _most_common(times: Int64s, inner: Int64s) -> int:
    """The most common step; 1 if there is none."""
    counted = count_steps(times, inner)
    del counted[0]  # the step between events of one time
    # of equally common steps the smallest, so that the order in which they are counted does not matter
    return min(counted, key=lambda step: (-counted[step], step), default=1)


def count_steps(times: Int64s, inner: Int64s) -> Counter[int]:
    """How often each step occurs; the rarest may be left out.

    `inner` are the rows whose step to the next one leads to another entity.
    """
    counted: Counter[int] = Counter()
    for start in range(0, len(times) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(times) - 1)
        steps = times[start + 1 : stop + 1] - times[start:stop]
        values, counts = np.unique(np.delete(steps, _within(inner, start, stop)), return_counts=True)
        counted.update(dict(zip(values.tolist(), counts.tolist())))
        if len(counted) > _MOST_STEPS:
            counted = Counter(dict(counted.most_common(_MOST_STEPS // 2)))
    return counted
