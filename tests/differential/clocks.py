"""The times of random panels: integers, dates and timestamps of many steps, units and zones."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Clock:
    """Turns numbers of steps into times, and lengths of steps into durations."""

    name: str
    unit: str | None = None  # of a timestamp; "D" for dates, None for integers
    first: str = "2024-03-28"
    step: int = 1  # in `length`
    length: Any = "h"  # of numpy
    zone: str | None = None
    duration: str = ""  # of one step, with a place for its number
    tolerance: Any = None
    frequency: Any = None  # to be given, where it is not found

    def values(self, steps: Ints) -> Any:
        """The times of steps as integers or datetime64 without a zone."""
        if self.unit is None:
            return steps * self.step - 40
        if self.name == "business":
            return np.busday_offset(np.datetime64(self.first), steps, roll="forward")
        start = np.datetime64(self.first, self.length)
        times: Any = start + steps * np.timedelta64(self.step, self.length)
        if self.tolerance is not None:
            times = times.astype("M8[s]") + (steps * 7 % 11 - 5)
        return times.astype(f"M8[{self.unit}]")

    def column(self, steps: Ints) -> pa.Array:
        """The times of steps as an Arrow array."""
        array = pa.array(self.values(steps))
        return array if self.zone is None else array.cast(pa.timestamp(self.unit, self.zone))

    def span(self, steps: int) -> Any:
        """That many steps as an integer, or as a duration in the words of polars."""
        if self.unit is None:
            return steps * self.step
        return f"{'-' * (steps < 0)}{abs(steps) * self.step}{self.duration}"

    def moment(self, steps: int, rng: Random) -> Any:
        """A time in one of the forms that cuts have."""
        if self.unit is None:
            return steps * self.step - 40
        value = self.values(np.array([steps]))[0]
        return str(value) if self.zone is not None or rng.random() < 0.5 else value


CLOCKS = (
    Clock("integers"),
    Clock("integers by 5", step=5),
    Clock("seconds", "s", length="s", step=30, duration="s"),
    Clock("hours in s", "s", duration="h"),
    Clock("hours in ms", "ms", duration="h"),
    Clock("hours in ns", "ns", duration="h"),
    Clock("quarters of hours", "us", length="m", step=15, duration="m"),
    Clock("jitter", "s", duration="h", tolerance="1m", frequency="1h"),
    Clock("zone", "us", zone="Europe/Berlin", first="2024-03-30", duration="h"),
    Clock("zone back", "ms", zone="America/New_York", first="2024-11-02", duration="h"),
    Clock("dates", "D", length="D", duration="d"),
    Clock("weeks", "D", length="D", step=7, duration="d"),
    Clock("months", "D", length="M", first="2020-01", duration="mo"),
    Clock("years in s", "s", length="Y", first="1950", duration="y"),
    Clock("business", "D", duration="d", frequency="1bd"),
)
