"""`tensorstash bench`: batches of the user's file, compared with a `DataLoader` whose items are single windows."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tensorstash.batches.loader import Loader
from tensorstash.gather.layout import Batch
from tensorstash.windows.windows import Windows

_LEAST_SECONDS = 0.1  # of a pass, beside which its beginning is short
_LEAST_STEPS = 20  # of a pass: more than the batches that workers make ahead
_LEAST_PASSES = 3
_WARM_SECONDS = 1.0  # of passes that are not counted: a processor that was idle speeds up


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


def bench(windows: Windows, batch_size: int, workers: int, seconds: float) -> list[dict[str, Any]]:
    """Time passes of our loader, and of a `DataLoader` without and with workers, over the same windows.

    They take turns, pass by pass, because a machine changes its speed from minute to minute.

    Args:
        windows: without empty slots, as with `gaps="split"`.
        batch_size: windows of a batch.
        workers: processes of the last `DataLoader`.
        seconds: how long each runs, after one second of all that is not counted, but for at least three passes.
    """
    items = Items(windows, torch.from_numpy(windows.placement.anchor_slots(np.arange(len(windows)))))

    def ours_of(steps: int) -> Iterable[Batch]:
        return Loader(windows, batch_size, shuffle=True, steps=steps)

    def theirs_of(count: int, steps: int) -> Iterable[Batch]:
        drawn = RandomSampler(items, replacement=True, num_samples=steps * batch_size)
        return DataLoader(items, batch_size, sampler=drawn, num_workers=count, persistent_workers=count > 0)

    ways = {"tensorstash": ours_of} | {f"DataLoader, {k} workers": partial(theirs_of, k) for k in (0, workers)}
    first = {way: whole_pass(loader_of(_LEAST_STEPS))[0] for way, loader_of in ways.items()}
    loaders = {way: long_enough(loader_of) for way, loader_of in ways.items()}

    def take_turns(least: int, seconds: float) -> Iterator[dict[str, float]]:
        began, passes = time.perf_counter(), 0
        while passes < least or time.perf_counter() - began < seconds:
            yield {way: whole_pass(loader)[1] for way, loader in loaders.items()}
            passes += 1

    list(take_turns(1, _WARM_SECONDS))
    passes = [*take_turns(_LEAST_PASSES, seconds * len(ways))]
    return [
        {
            "way": way,
            "seconds_to_first_batch": first[way],
            "windows_per_second": statistics.median(speeds[way] for speeds in passes),
            "slowest": min(speeds[way] for speeds in passes),
            "fastest": max(speeds[way] for speeds in passes),
        }
        for way in ways
    ]


def long_enough(loader_of: Callable[[int], Iterable[Batch]]) -> Iterable[Batch]:
    """A loader, from a number of steps, whose passes are long enough."""
    steps = _LEAST_STEPS
    while True:
        loader = loader_of(steps)
        whole_pass(loader)  # warms up and starts workers
        began = time.perf_counter()
        whole_pass(loader)
        if time.perf_counter() - began >= _LEAST_SECONDS:
            return loader
        steps *= 2


def whole_pass(loader: Iterable[Batch]) -> tuple[float, float]:
    """The seconds to the first batch of a pass, and the windows per second of all of it.

    The first batch counts too, because others may have been made with it.
    """
    began, windows, first = time.perf_counter(), 0, 0.0
    for batch in loader:
        first = first or time.perf_counter() - began
        windows += len(next(iter(batch.values())))
    return first, windows / (time.perf_counter() - began)
