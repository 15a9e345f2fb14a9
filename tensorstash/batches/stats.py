"""Where the time of a pass goes: what `loader.stats()` shows."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorstash.batches.host import Gathered
from tensorstash.sampling.passes import Pass

_clock = time.perf_counter


@dataclass(slots=True)
class Times:
    """The times of one pass, in seconds."""

    begun: Pass
    started: float = field(default_factory=_clock)
    ended: float | None = None
    waited: float = 0.0  # by the loop, for batches
    waited_for_copies: float = 0.0
    transformed: float = 0.0  # by the transforms of the loop

    def stats(self) -> dict[str, Any]:
        """The times as they are shown."""
        ended = _clock() if self.ended is None else self.ended
        return {
            "steps": self.begun.here.taken - self.begun.start.taken,
            "seconds": ended - self.started,
            "wait_seconds": self.waited + self.transformed,
            "wait_gather_seconds": self.waited - self.waited_for_copies,
            "wait_copy_seconds": self.waited_for_copies,
            "transform_seconds": self.transformed,
        }


def awaited(portions: Iterator[Gathered], copy_clock: Callable[[], float], times: Times) -> Iterator[Gathered]:
    """The same portions, whose times tell how long the loop waited for each, and how much of that by the copy clock."""
    while True:
        began, before = _clock(), copy_clock()
        portion = next(portions, None)
        times.waited += _clock() - began
        times.waited_for_copies += copy_clock() - before
        if portion is None:
            return
        yield portion
