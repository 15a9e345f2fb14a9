"""A feed in a process of its own: checked against its file, then asked to train models."""

import importlib
import itertools
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from contestants.process import family_mb
from device import wait_for
from numpy.typing import NDArray

from feeds.models import MODELS
from feeds.task import Batch, Task, expected, keys, read, scaling

CHECKED = 3  # batches of the large file


class Run:
    """One feed over one file, and the models that it trains."""

    def __init__(self) -> None:
        self.make: Any = None
        self.feed: Any = None
        self.first: Batch = {}
        self.task = Task("", 0, 0, 0, 0, 0, (), 0)

    def open(self, module: str, function: str, task: dict[str, Any], threads: int) -> None:
        """Import the feed; its task comes as JSON."""
        torch.set_num_threads(threads)
        names: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in task.items()}
        self.task, self.make = Task(**names), getattr(importlib.import_module(f"feeds.{module}"), function)

    def whole(self, path: str, drawn: bool) -> int:
        """Fail unless an epoch of a small file has its windows, each once unless they are drawn; how many it shows."""
        task = replace(self.task, path=path, batch=16)
        shown, every = found(self.make(task), task), expected(task)
        assert np.isin(shown, every).all(), f"{(~np.isin(shown, every)).sum()} windows are not in the file"
        assert drawn or len(np.unique(shown)) == len(shown), "an epoch shows windows twice"
        assert drawn or len(shown) == len(every) // task.batch * task.batch, f"{len(shown)} of {len(every)} windows"
        return len(shown)

    def begin(self, path: str) -> float:
        """Seconds from the closed file to the first batch; the windows of the first ones are in it."""
        torch.manual_seed(0)
        began = time.perf_counter()
        self.feed = self.make(self.task)
        self.first = on(self.task.device, next(iter(self.feed)))
        took = time.perf_counter() - began
        shown = found(itertools.islice(self.feed, CHECKED), self.task)
        assert np.isin(shown, np.load(path)).all(), "windows are not in the file"
        return took

    def train(self, name: str, steps: int, seconds: float) -> dict[str, float]:
        """Train a new model for so many steps and seconds, or for an epoch.

        Seconds of an epoch, the share of them spent waiting, MB of all processes.
        """
        torch.manual_seed(0)
        device = torch.device(self.task.device)
        model = MODELS[name](self.task).to(device)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        step(model, optimizer, self.first)  # the first one imports and allocates
        wait_for(device)
        waits: list[float] = []
        works: list[float] = []
        batches, began = iter(self.feed), time.perf_counter()
        while len(waits) < len(self.feed) and (len(waits) < steps or time.perf_counter() - began < seconds):
            asked = time.perf_counter()
            batch = on(self.task.device, next(batches))
            had = time.perf_counter()
            step(model, optimizer, batch)
            waits.append(had - asked)
            works.append(time.perf_counter() - had)
        asked = time.perf_counter()
        wait_for(device)  # of what was queued, the rest
        works[-1] += time.perf_counter() - asked
        memory = family_mb(os.getpid())
        del batches  # and with it the workers
        waited, worked = (epoch_of(times, len(self.feed)) for times in (waits, works))
        return {"epoch_s": waited + worked, "waiting": waited / (waited + worked), "memory_mb": memory}


def on(device: str, batch: Batch) -> Batch:
    """What is there already stays as it is."""
    return {name: entry.to(device, non_blocking=True) for name, entry in batch.items()}


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    loss = torch.nn.functional.mse_loss(model(batch), batch["target"])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def epoch_of(times: Sequence[float], steps: int) -> float:
    """Seconds of a whole epoch: its first step, and all others as long as the mean of those that were made."""
    first, *rest = times
    return first + (sum(rest) / len(rest) * (steps - 1) if rest else 0.0)


def found(batches: Iterable[Batch], task: Task) -> NDArray[np.int64]:
    """The keys of all windows of batches."""
    mean, scale = scaling(read(task), task)
    return np.concatenate([keys(batch, task, mean, scale) for batch in batches])
