"""`tensorstash bench`: batches of the user's file, compared with a `DataLoader` whose items are single windows."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from tensorstash.batches.loader import Loader
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]

_HIDDEN = 64  # hidden units of the model that stands in for the user's


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of one way of making batches, in a training loop of a small model."""

    way: str
    seconds_to_first_batch: float
    windows_per_second: float  # of waiting: the speed of the batches alone
    share_waiting: float  # of the loop's time
    bytes: int  # memory of the process and its workers; what they share counts once


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


def bench(windows: Windows, batch_size: int, workers: int, seconds: float) -> Iterator[Result]:
    """Time our loader, then a `DataLoader` without and with workers, over the same windows.

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
    yield _timed("tensorstash", Loader(windows, batch_size=batch_size, shuffle=True), seconds)
    for count in (0, workers):
        loader = DataLoader(items, batch_size, shuffle=True, num_workers=count)
        yield _timed(f"DataLoader, {count} workers", loader, seconds)


def _timed(way: str, batches: Iterable[Batch], seconds: float) -> Result:
    started = time.perf_counter()
    endless = chain.from_iterable(batches for _ in iter(int, 1))
    batch = next(endless)
    first = time.perf_counter() - started
    width = _values(batch).shape[1]
    model = torch.nn.Sequential(torch.nn.Linear(width, _HIDDEN), torch.nn.ReLU(), torch.nn.Linear(_HIDDEN, 1))
    _train(model, batch)  # the first step allocates
    seen, waited, started = 0, 0.0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        batch = next(endless)
        waited += time.perf_counter() - before
        seen += len(next(iter(batch.values())))
        _train(model, batch)
    total = time.perf_counter() - started
    this = psutil.Process()
    used = [process.memory_full_info() for process in (this, *this.children(recursive=True))]
    # pss, where the system has it, divides shared pages among processes
    nbytes = sum(getattr(memory, "pss", memory.rss) for memory in used)
    return Result(way, first, seen / max(waited, 1e-9), waited / total, nbytes)


def _train(model: torch.nn.Module, batch: Batch) -> None:
    model.zero_grad()
    model(_values(batch)).square().mean().backward()


def _values(batch: Batch) -> torch.Tensor:
    flat = [tensor.flatten(1).to(torch.float32) for tensor in batch.values() if tensor.ndim > 1]
    return torch.cat(flat, 1).nan_to_num()
