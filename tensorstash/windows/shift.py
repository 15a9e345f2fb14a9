"""Lengths of time that times are moved by."""

from dataclasses import dataclass

import numpy as np

from tensorstash.common.calendar import Step
from tensorstash.common.dtypes import Int64s

FARTHEST = 1 << 61  # ticks that a time is moved by, so that the result fits into int64


@dataclass(frozen=True, slots=True)
class Shift:
    """A signed length of time: a number of steps, which may be 0."""

    text: int | str  # as it was given
    step: Step
    steps: int

    def moved(self, times: Int64s, by: int = 1) -> Int64s:
        """The times moved `by` such lengths, any shape."""
        if not self.steps * by:
            return times  # a calendar would move local times that occur twice
        flat = times.reshape(-1)
        return self.step.advance(flat, np.full(flat.shape, self.steps * by)).reshape(times.shape)

    @property
    def ticks(self) -> int:
        """Its signed length in ticks, if that is fixed."""
        return self.steps * self.step.count

    @property
    def most_ticks(self) -> int:
        """An upper bound of its length in ticks, whatever months and weekends it spans."""
        return abs(self.steps) * self.step.most_ticks
