"""Where the time of a pass goes: what `loader.stats()` shows."""

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Timer:
    """The times of one pass, in seconds."""

    started: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    steps: int = 0
    waited: float = 0.0  # by the loop, for what follows
    waited_for_copies: float = 0.0
    transformed: float = 0.0
    gathered: float = 0.0
    copied: float = 0.0
    nbytes: int = 0  # of what was gathered
    row: tuple[int, int] = (0, 0)  # where the pass began in the endless sequence of epochs, and where it stands

    def stats(self) -> dict[str, Any]:
        """The times as they are shown."""
        ended = time.perf_counter() if self.ended is None else self.ended
        return {
            "steps": self.steps,
            "seconds": ended - self.started,
            "wait_seconds": self.waited,
            "wait_gather_seconds": self.waited - self.waited_for_copies - self.transformed,
            "wait_copy_seconds": self.waited_for_copies,
            "gather_seconds": self.gathered,
            "copy_seconds": self.copied,
            "transform_seconds": self.transformed,
            "gigabytes_per_second": self.nbytes / self.gathered / 1e9 if self.gathered else 0.0,
        }
