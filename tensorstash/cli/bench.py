"""`tensorstash bench`: batches of the user's file, compared with a `DataLoader` whose items are single windows."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tensorstash.batches.loader import Loader
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]
Clock = Callable[[], float]

_LEAST_SECONDS = 0.1  # of a pass, beside which its beginning is short
_LEAST_STEPS = 20  # of a pass: more than the batches that workers make ahead
_LEAST_PASSES = 3


@dataclass(frozen=True, slots=True)
class Result:
    """The speed of one way of making batches."""

    way: str
    seconds_to_first_batch: float
    windows_per_second: float  # the median of all passes
    slowest: float  # the lowest and highest of them
    fastest: float
    passes: int


@dataclass(frozen=True, slots=True)
class Pass:
    """The batches of a loader, from the call of `iter` to the last one."""

    windows: int
    seconds: float
    first: float  # seconds to the first batch


class Items(Dataset[Batch]):
    """The same windows, made as in most programs: a slice of each column per item."""

    def __init__(self, windows: Windows, starts: torch.Tensor) -> None:
        self.stash, self.spans, self.starts = windows.stash, windows.spans, starts

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, k: int) -> Batch:
        anchor = int(self.starts[k])
        return {
            span.name: self.stash[span.column][anchor + span.start : anchor + span.stop : span.step]
            for span in self.spans
        }


def bench(windows: Windows, batch_size: int, workers: int, seconds: float) -> list[Result]:
    """Time passes of our loader, and of a `DataLoader` without and with workers, over the same windows.

    They take turns, pass by pass, because a machine changes its speed from minute to minute.

    Args:
        windows: without empty slots, as with `gaps="split"`.
        batch_size: windows of a batch.
        workers: processes of the last `DataLoader`.
        seconds: how long each runs, but for at least three passes.

    Raises:
        RuntimeError: the two make different windows.
    """
    items = Items(windows, torch.from_numpy(windows.placement.anchor_slots(np.arange(len(windows)))))
    for k in torch.linspace(0, len(windows) - 1, 5).long().tolist():
        ours, theirs = windows[k], items[k]
        if not all(torch.equal(ours[name].view(torch.uint8), theirs[name].view(torch.uint8)) for name in theirs):
            raise RuntimeError(f"The Dataset must make the windows of tensorstash; window {k} differs.")

    def ours_of(steps: int) -> Iterable[Batch]:
        return Loader(windows, batch_size, shuffle=True, steps=steps)

    def theirs_of(count: int, steps: int) -> Iterable[Batch]:
        drawn = RandomSampler(items, replacement=True, num_samples=steps * batch_size)
        return DataLoader(items, batch_size, sampler=drawn, num_workers=count, persistent_workers=count > 0)

    ways = {"tensorstash": ours_of} | {
        f"DataLoader, {count} workers": partial(theirs_of, count) for count in (0, workers)
    }
    begun = {way: long_enough(loader_of) for way, loader_of in ways.items()}
    passes = in_turns({way: loader for way, (loader, _) in begun.items()}, seconds)
    return [result(way, begun[way][1], passes[way]) for way in ways]


def long_enough(
    loader_of: Callable[[int], Iterable[Batch]], clock: Clock = time.perf_counter
) -> tuple[Iterable[Batch], float]:
    """A loader, from a number of steps, whose passes are long enough, and the time of its first batch."""
    steps, first = _LEAST_STEPS, None
    while True:
        loader = loader_of(steps)
        beginning = taking(loader, clock).first  # the first pass warms up and starts workers
        first = beginning if first is None else first
        if taking(loader, clock).seconds >= _LEAST_SECONDS:
            return loader, first
        steps *= 2


def in_turns(
    loaders: Mapping[str, Iterable[Batch]], seconds: float, clock: Clock = time.perf_counter
) -> dict[str, list[Pass]]:
    """Whole passes of each loader, one after the other, for so many seconds of each."""
    passes: dict[str, list[Pass]] = {way: [] for way in loaders}
    began = clock()
    while clock() - began < seconds * len(loaders) or min(map(len, passes.values())) < _LEAST_PASSES:
        for way, loader in loaders.items():
            passes[way].append(taking(loader, clock))
    return passes


def taking(loader: Iterable[Batch], clock: Clock = time.perf_counter) -> Pass:
    """Take all batches of a pass. The first counts too: other batches may have been made with it."""
    began = clock()
    windows, first = 0, None
    for batch in loader:
        first = clock() - began if first is None else first
        windows += len(next(iter(batch.values())))
    assert first is not None
    return Pass(windows, clock() - began, first)


def result(way: str, first: float, passes: list[Pass]) -> Result:
    """The median and the range of some passes."""
    speeds = [one.windows / one.seconds for one in passes]
    return Result(way, first, statistics.median(speeds), min(speeds), max(speeds), len(passes))
