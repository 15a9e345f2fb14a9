"""A calendar: all times that exist, such as trading days, in place of a frequency. Numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

import numpy as np

from tensorstash.common.checks import is_listed
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import Frequency
from tensorstash.errors import DataError

if TYPE_CHECKING:
    from tensorstash.common.dtypes import Bools, Int8s, Int64s  # not at run time: it imports torch

_LIMITS = -1 << 63, (1 << 63) - 1
GivenStep = Any  # a duration, or a sequence of all times that exist


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """A step that leads from each of the times that exist to the next one. It has the methods of a `Frequency`.

    The place of a time is found by bisection, which needs no memory.
    """

    times: Int64s  # ascending
    clock: Clock
    kind: ClassVar[str] = "calendar"
    count: ClassVar[int] = 1
    most_ticks: ClassVar[int] = 0  # no sum of steps leads further than the last time
    tolerance: ClassVar[int] = 0

    @property
    def text(self) -> str:
        """What it is called in messages."""
        return f"calendar of {len(self.times):,} times"

    @property
    def least_ticks(self) -> int:
        """The shortest step."""
        return max(1, int(np.diff(self.times).min(initial=_LIMITS[1])))

    @property
    def identity(self) -> dict[str, int]:
        """What tells it from other calendars, in plain values."""
        first, last = map(int, self.times[[0, -1]])
        return {"times": len(self.times), "first": first, "last": last, "checksum": crc32(self.times.tobytes())}

    def places(self, times: Int64s) -> Int64s:
        """The place of the first time at or after each time, any shape; behind the last one, the number of times."""
        return np.searchsorted(self.times, times)

    def has(self, times: Int64s) -> Bools:
        """Which times exist."""
        return self.times[np.minimum(self.places(times), len(self.times) - 1)] == times

    def follows(self, before: Int64s, after: Int64s, steps: Int64s | int = 1) -> Bools:
        """Whether each `after` is `steps` steps later than `before`, all `(n,)`."""
        return self.steps(before, after) == steps

    def steps(self, before: Int64s, after: Int64s) -> Int64s:
        """How many steps lie between each pair of times, both `(n,)`."""
        return self.places(after) - self.places(before)

    passed = steps  # all steps are whole

    def advance(self, times: Int64s, steps: Int64s, days: Int8s | int = 0) -> Int64s:  # noqa: ARG002  as of frequencies
        """The times that many steps later, or earlier; outside of the calendar the least and the greatest integer."""
        places = self.places(times) + steps
        moved = self.times[np.clip(places, 0, len(self.times) - 1)]
        return np.where(places < 0, _LIMITS[0], np.where(places < len(self.times), moved, _LIMITS[1]))

    def advance_one(self, time: int, steps: int, day: int = 0) -> int | None:  # noqa: ARG002  as of frequencies
        """The time of one slot some steps from the one at or after a time, or else the end of the calendar before it.

        One end is the first time, the other one the tick after the last; `None` if that does not fit into 64 bits.
        """
        place = max(0, int(self.places(np.array(time))) + steps)
        if place < len(self.times):
            return int(self.times[place])
        return int(self.times[-1]) + 1 if self.times[-1] < _LIMITS[1] else None

    def continues(self, other: Calendar) -> bool:
        """Whether it begins with all times of another calendar."""
        return np.array_equal(self.times[: len(other.times)], other.times)

    def check_reach(self, times: Int64s, steps: Int64s) -> None:
        """Raise `DataError`, with the number of times that are missing, for steps that lead out of the calendar."""
        places = self.places(times) + steps
        ahead, behind = -int(places.min()), int(places.max()) + 1 - len(self.times)
        if max(ahead, behind) > 0:
            first, last = (self.clock.format(int(time)) for time in self.times[[0, -1]])
            more, end = (behind, "end") if behind > 0 else (ahead, "start")
            raise DataError(
                f"Slots outside the rows have times in the calendar, which goes from {first} to {last}; {more:,} more "
                f"are needed. Give them at the {end} of frequency=."
            )


Step = Frequency | Calendar


def is_calendar(given: object) -> bool:
    """Whether `frequency=` is a sequence of times."""
    return is_listed(given) and not isinstance(given, (dict, set, frozenset))
