"""A contestant's own process: it does what a line of its input says, and answers with a line of JSON."""

import importlib
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from contestants.workload import NAMES, Batch, Workload, check

CHECKED = 3  # batches


class Run:
    """One contestant at a time of a module, and the batches that it yields."""

    def __init__(self, module: str) -> None:
        self.module = importlib.import_module(f"contestants.{module}")
        self.batches: Iterator[Any] = iter(())
        self.first: Any = None
        self.work = Workload("", 0, 0, 0)

    def begin(self, function: str, threads: int, work: dict[str, Any]) -> float:
        """Seconds to the first batch."""
        self.batches, self.first = iter(()), None  # which ends the workers of the last one
        self.work = Workload(**work)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        self.batches = getattr(self.module, function)(self.work)
        self.first = next(self.batches)
        return time.perf_counter() - began

    def check(self) -> float:
        """Look all windows of the next batches up in the file; the mean number of series in a batch."""
        more = itertools.islice(self.batches, CHECKED - int(self.first is not None))
        before = [] if self.first is None else [self.first]
        found = [self.starts(batch) for batch in (*before, *more)]
        self.first = None
        return sum(len(torch.unique(starts // self.work.steps)) for starts in found) / len(found)

    def epoch(self) -> int:
        """Fail unless the batches of an epoch, after `begin` alone, show no window twice; how many they are."""
        count = self.work.windows // self.work.batch
        more = itertools.islice(self.batches, count - 1)
        shown = torch.cat([self.starts(batch) for batch in itertools.chain([self.first], more)])
        self.first = None
        twice = len(shown) - len(torch.unique(shown))
        assert not twice, f"{twice} of {len(shown)} windows of an epoch are not new."
        return len(shown)

    def starts(self, batch: Any) -> torch.Tensor:
        return check(getattr(self.module, "columns", plain)(batch, self.work), self.work)

    def speed(self, seconds: float) -> float:
        """Windows per second, over so many seconds or one batch."""
        count, began = 0, time.perf_counter()
        while True:
            batch = next(self.batches)  # noqa: F841  held until the next one is there, as in a loop
            count += 1
            spent = time.perf_counter() - began
            if spent >= seconds:
                return count * self.work.batch / spent


def plain(batch: Any, _: Workload) -> Batch:
    return batch if isinstance(batch, dict) else dict(zip(NAMES, batch.unbind(2)))


def answer(make: Callable[[], Any]) -> None:
    """Answer until the input ends: first that everything is imported, then each call of a method of what it makes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    run = make()
    print(json.dumps({"value": None}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(run, *json.loads(line))), file=answers, flush=True)


def outcome(run: Any, method: str, *arguments: Any) -> dict[str, Any]:
    try:
        return {"value": getattr(run, method)(*arguments)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
