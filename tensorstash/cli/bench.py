"""`tensorstash bench`: batches of the user's file, compared with a `DataLoader` whose items are single windows."""

import statistics
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tensorstash.batches.loader import Loader
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]

_PASSES = 5
_ENDLESS = 1 << 40  # steps of a pass, which ends by time


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
        seconds: how long each runs.

    Raises:
        RuntimeError: the two make different windows.
    """
    items = Items(windows, torch.from_numpy(windows.placement.anchor_slots(np.arange(len(windows)))))
    for k in torch.linspace(0, len(windows) - 1, 5).long().tolist():
        ours, theirs = windows[k], items[k]
        if not all(torch.equal(ours[name].view(torch.uint8), theirs[name].view(torch.uint8)) for name in theirs):
            raise RuntimeError(f"The Dataset must make the windows of tensorstash; window {k} differs.")
    loaders: dict[str, Iterable[Batch]] = {"tensorstash": Loader(windows, batch_size, shuffle=True, steps=_ENDLESS)}
    for count in (0, workers):
        drawn = RandomSampler(items, replacement=True, num_samples=_ENDLESS)
        loader = DataLoader(items, batch_size, sampler=drawn, num_workers=count, persistent_workers=count > 0)
        loaders[f"DataLoader, {count} workers"] = loader
    length = seconds / _PASSES
    begun = {way: first_and_speed(loader, length)[0] for way, loader in loaders.items()}  # starts workers too
    turns = [{way: first_and_speed(loader, length)[1] for way, loader in loaders.items()} for _ in range(_PASSES)]
    return [
        {
            "way": way,
            "seconds_to_first_batch": first,
            "windows_per_second": statistics.median(turn[way] for turn in turns),
            "slowest": min(turn[way] for turn in turns),
            "fastest": max(turn[way] for turn in turns),
        }
        for way, first in begun.items()
    ]


def first_and_speed(loader: Iterable[Batch], seconds: float) -> tuple[float, float]:
    """The seconds to the first batch of a pass, and its windows per second.

    The first batch counts too, because others may have been made with it.
    """
    began, windows, first = time.perf_counter(), 0, 0.0
    for batch in loader:
        gone = time.perf_counter() - began
        first, windows = first or gone, windows + len(next(iter(batch.values())))
        if gone >= seconds:
            break
    return first, windows / gone
