"""Where the time of a pass goes: what `loader.stats()` shows."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tensorstash.batches.assemble import Portion
from tensorstash.batches.buffers import Batch, Pending
from tensorstash.sampling.passes import Position

_clock = time.perf_counter
_START = Position()
Transformed = TypeVar("Transformed")


@dataclass(slots=True)
class Times:
    """The times of one pass, in seconds."""

    started: float = field(default_factory=_clock)
    ended: float | None = None
    waited: float = 0.0  # by the loop, for what follows
    waited_for_copies: float = 0.0
    transformed: float = 0.0
    gathered: float = 0.0
    copied: float = 0.0
    nbytes: int = 0  # of what was gathered
    start: Position = _START  # where the pass began
    now: Position = _START  # where it stands

    def stats(self) -> dict[str, Any]:
        """The times as they are shown."""
        ended = _clock() if self.ended is None else self.ended
        return {
            "steps": self.now.taken - self.start.taken,
            "seconds": ended - self.started,
            "wait_seconds": self.waited,
            "wait_gather_seconds": self.waited - self.waited_for_copies - self.transformed,
            "wait_copy_seconds": self.waited_for_copies,
            "gather_seconds": self.gathered,
            "copy_seconds": self.copied,
            "transform_seconds": self.transformed,
            "gigabytes_per_second": self.nbytes / self.gathered / 1e9 if self.gathered else 0.0,
        }


class Timer:
    """Measures the functions of a pass, and how long its loop waits for each portion and each batch."""

    def __init__(self, times: Times, copy_seconds: Callable[[], float], *, gathers_in_loop: bool) -> None:
        """`copy_seconds` is the time so far that building batches has spent on copies."""
        self._times = times
        self._copy_seconds = copy_seconds
        self._gathers_in_loop = gathers_in_loop
        self._clock = _clock  # at interpreter exit the globals of modules may be gone
        self.ask()

    def ask(self) -> None:
        """The loop asks for a portion."""
        self._asked, self._copying = _clock(), self._copy_seconds()

    def given(self) -> None:
        """The loop is given the portion."""
        self._times.waited_for_copies += self._copy_seconds() - self._copying
        self._times.waited += _clock() - self._asked

    def end(self) -> None:
        """The pass is over."""
        self._times.ended = self._clock()

    def building(
        self, build: Callable[[Portion], list[Batch | Pending]], window_bytes: int
    ) -> Callable[[Portion], list[Batch | Pending]]:
        """`build`, measured in whichever thread calls it."""
        times, copy_seconds = self._times, self._copy_seconds

        def measured(portion: Portion) -> list[Batch | Pending]:
            began, before = _clock(), copy_seconds()
            pending = build(portion)
            copied = copy_seconds() - before
            times.copied += copied
            times.gathered += _clock() - began - copied
            times.nbytes += len(portion.steps) * portion.group.count * window_bytes
            return pending

        return measured

    def complete(self, pending: Pending) -> Batch:
        """`pending.complete()`, measured: the loop waits for a copy, or gathers."""
        times, began = self._times, _clock()
        batch = pending.complete()
        spent = _clock() - began
        times.waited += spent
        if self._gathers_in_loop:
            times.gathered += spent
        else:
            times.copied += spent
            times.waited_for_copies += spent
        return batch

    def transforming(self, transform: Callable[[Batch], Transformed]) -> Callable[[Batch], Transformed]:
        """`transform`, measured."""
        times = self._times

        def measured(batch: Batch) -> Transformed:
            began = _clock()
            done = transform(batch)
            spent = _clock() - began
            times.transformed += spent
            times.waited += spent
            return done

        return measured
