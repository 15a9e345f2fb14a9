"""The day of the month that an entity has its times on, which shorter months cut: the 31st, or the last day."""

from typing import TYPE_CHECKING

import numpy as np

from tensorstash.common.dtypes import Int8s, Int64s
from tensorstash.common.frequency import day_of_month
from tensorstash.stash.header import MONTH_DAYS

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash

LAST = 32  # every time is the last day of its month; also where there is none
_BLOCK = 1 << 18  # rows looked at together
_SHORTEST = 28  # days of a month


def month_days(stash: "Stash") -> Int8s:
    """`(entities,)`: 32 if all times of the entity are last days of months, else the largest day, from 1 to 31."""
    assert stash.time is not None
    times, offsets = stash.time.numpy(), stash.offsets.numpy()
    is_kept = MONTH_DAYS in stash.segment.checksums
    days = stash.segment.blob(MONTH_DAYS).numpy().copy() if is_kept else np.full(len(offsets) - 1, LAST, np.int8)
    of_rows = np.empty(len(times), np.int8)  # negative on the last day of a month
    for start in range(0, len(times), _BLOCK):
        day, is_last = day_of_month(times[start : start + _BLOCK], stash.clock)
        of_rows[start : start + _BLOCK] = np.where(is_last, -day, day)
    has_rows = np.flatnonzero(np.diff(offsets))
    if len(has_rows):
        first, before = offsets[has_rows], days[has_rows]
        are_last = (np.maximum.reduceat(of_rows, first) < 0) & (before == LAST)
        largest = np.maximum(np.maximum.reduceat(np.abs(of_rows), first), before % LAST)
        days[has_rows] = np.where(are_last, LAST, largest)
    return days


def kept_days(stash: "Stash") -> Int8s | None:
    """The same for a stash that takes over the entities; `None` if no times are as far apart as months are."""
    if MONTH_DAYS not in stash.segment.checksums and not _has_months(stash):
        return None
    return month_days(stash)


def _has_months(stash: "Stash") -> bool:
    """Whether the mean step of some entity is that of a month; it costs the same whatever the number of rows."""
    if stash.time is None or stash.clock.unit is None or stash.known is not None:
        return False
    times, offsets = stash.time.numpy(), stash.offsets.numpy()
    steps: Int64s = np.diff(offsets) - 1
    which = np.flatnonzero(steps > 0)
    lengths = times[offsets[1:][which] - 1] - times[offsets[which]]
    return bool((lengths // steps[which] >= _SHORTEST * stash.clock.day).any())
