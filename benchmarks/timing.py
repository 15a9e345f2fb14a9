"""One way to time: contestants take turns in short rounds, and are compared round by round.

A machine changes its speed from minute to minute; within a round, all contestants meet the same one. The first round
warms up and is left out. Figures are medians, with the lowest and the highest round in brackets.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Turn = Callable[[], float]  # does some work, and returns the seconds of one unit of it
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one contestant is as another: the median of all rounds, the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        extent = "" if self.low == self.high else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.median:.2f}{extent}"


@dataclass(frozen=True)
class Rounds:
    """The seconds of each contestant in each round; ours is the first of them."""

    seconds: Mapping[str, list[float]]

    @property
    def ours(self) -> str:
        return next(iter(self.seconds))

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, beside: str) -> Ratio:
        """How many times as fast the first is as the second."""
        ratios = [theirs / own for own, theirs in zip(self.seconds[name], self.seconds[beside])]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))

    def row(self, **labels: Any) -> dict[str, Any]:
        """A row of the results, with every round."""
        return {**labels, "seconds": {name: [*own] for name, own in self.seconds.items()}}

    def show(self, title: str) -> None:
        """Print the time of each contestant, and how many times as long it takes as ours."""
        print(f"\n{title}", flush=True)
        for name in self.seconds:
            beside = "" if name == self.ours else f"{self.ratio(self.ours, name)} times as long"
            print(f"    {name:34} {duration(self.median(name)):>9}   {beside}".rstrip(), flush=True)


def rounds_of(turns: Mapping[str, Turn], rounds: int) -> Rounds:
    """Let the contestants take turns, once more than so many rounds."""
    every = [{name: turn() for name, turn in turns.items()} for _ in range(rounds + 1)][1:]
    return Rounds({name: [one[name] for one in every] for name in turns})


def taking(batches: Iterator[Any], steps: int, clock: Clock = time.perf_counter) -> Turn:
    """A turn that takes so many batches, each held until the next one is there, as in a loop that trains."""

    def turn() -> float:
        began = clock()
        for _ in range(steps):
            batch = next(batches)  # noqa: F841
        return (clock() - began) / steps

    return turn


def calling(work: Callable[[], object], clock: Clock = time.perf_counter) -> Turn:
    """A turn that calls a function; what it returns is freed after the clock has stopped."""

    def turn() -> float:
        began = clock()
        made = work()
        spent = clock() - began
        del made
        return spent

    return turn


def endless(batches: Any) -> Iterator[Any]:
    """One epoch after the other."""
    while True:
        yield from batches


def duration(seconds: float) -> str:
    """Three digits and a unit: 4.21 us, 517 us, 12.3 ms, 1.30 s."""
    size, unit = next(((size, unit) for size, unit in ((1.0, "s"), (1e-3, "ms")) if seconds >= size), (1e-6, "us"))
    value = seconds / size
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"
