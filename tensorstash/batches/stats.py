"""Where the time of a pass goes: what `loader.stats()` shows."""

import time
from collections.abc import Callable, Generator, Iterator
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
    gathered: float = 0.0
    copied: float = 0.0
    windows: int = 0  # that were gathered

    def add(self, seconds: float, copying: float, windows: int, *, made: bool, waited: bool) -> None:
        """Batches were made in so much time, a part of which went into copies, or the loop waited for it, or both."""
        if made:
            self.copied += copying
            self.gathered += seconds - copying
            self.windows += windows
        if waited:
            self.waited += seconds
            self.waited_for_copies += copying

    def stats(self, window_bytes: int) -> dict[str, Any]:
        """The times as they are shown."""
        ended = _clock() if self.ended is None else self.ended
        return {
            "steps": self.begun.here.taken - self.begun.start.taken,
            "seconds": ended - self.started,
            "wait_seconds": self.waited + self.transformed,
            "wait_gather_seconds": self.waited - self.waited_for_copies,
            "wait_copy_seconds": self.waited_for_copies,
            "gather_seconds": self.gathered,
            "copy_seconds": self.copied,
            "transform_seconds": self.transformed,
            "gigabytes_per_second": self.windows * window_bytes / self.gathered / 1e9 if self.gathered else 0.0,
        }


def timed(
    portions: Iterator[Gathered],
    copy_clock: Callable[[], float],
    note: Callable[[float, float, int], None],
) -> Generator[Gathered, None, None]:
    """The same portions; `note` is told how long each took, how much of it by the copy clock, and its windows."""
    while True:
        began, before = _clock(), copy_clock()
        portion = next(portions, None)
        windows = 0 if portion is None else len(portion[1]) * portion[0].ids.shape[1]
        note(_clock() - began, copy_clock() - before, windows)
        if portion is None:
            return
        yield portion
