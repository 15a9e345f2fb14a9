"""`loader.stats()` says what the loop waited for; each case has one part that is far slower than the others.

It reaches inside `batches` to slow one part down.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.batches import host
from tensorstash.batches import prefetch as prefetching
from tests.late_device import LateCopies

pytestmark = pytest.mark.host("it chooses the ways itself")

SLOW = 0.05  # seconds, far more than a busy machine takes for what is not slow
STEPS = 6


class SlowCopies(LateCopies):
    """Copies that take long, and of which one at a time is made."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.free = 0.0  # when the last copy is done

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self.free = max(self.free, time.perf_counter()) + self.seconds
        return super().copy(staged)

    def record(self) -> Any:
        return SlowEvent(super().record(), self.free)

    def arrive(self, event: Any) -> None:
        event.pause()
        super().arrive(event.own)


class SlowEvent:
    """The end of a copy, for which the stream of the loop, here its thread, and the host wait."""

    def __init__(self, own: Any, end: float) -> None:
        self.own = own
        self.end = end

    def pause(self) -> None:
        time.sleep(max(0.0, self.end - time.perf_counter()))

    def synchronize(self) -> None:
        self.pause()
        self.own.synchronize()


def loader_over(seconds: float, prefetch: int, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> ts.Loader:
    monkeypatch.setattr("tensorstash.batches.loader.copies_to", lambda _: SlowCopies(seconds))
    return ts.Loader(ts.Windows(ts.load({"y": np.arange(100.0)}), 5), 16, prefetch=prefetch, **arguments)


def slow_build(monkeypatch: pytest.MonkeyPatch) -> None:
    gather_into: Callable[..., Any] = host.gather_into  # type: ignore[attr-defined]  # imported there

    def slowly(*arguments: Any) -> Any:
        time.sleep(SLOW)
        return gather_into(*arguments)

    monkeypatch.setattr(host, "gather_into", slowly)


def check_parts(stats: dict[str, Any]) -> None:
    parts = [stats[f"{name}_seconds"] for name in ("wait_gather", "wait_copy", "transform")]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(stats["wait_seconds"])
    assert stats["steps"] == STEPS


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_loop_that_waits_for_copies(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_over(SLOW, prefetch, monkeypatch)
    list(loader)
    stats = loader.stats()
    check_parts(stats)
    assert stats["wait_copy_seconds"] >= SLOW * (STEPS - 1)
    assert stats["wait_copy_seconds"] > stats["wait_gather_seconds"]
    assert stats["copy_seconds"] > stats["gather_seconds"]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_loop_that_waits_for_the_gather(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_build(monkeypatch)
    loader = loader_over(0, prefetch, monkeypatch)
    list(loader)
    stats = loader.stats()
    check_parts(stats)
    assert stats["wait_gather_seconds"] >= SLOW * (STEPS - 1)
    assert stats["wait_gather_seconds"] > stats["wait_copy_seconds"]
    assert stats["gather_seconds"] > stats["copy_seconds"]


@pytest.mark.parametrize("slow", ["copy", "gather"])
def test_a_loop_whose_model_is_slower_finds_every_batch_made(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model ends a step when the thread has made what it may make: from then on nothing is waited for."""
    if slow == "gather":
        slow_build(monkeypatch)
    loader = loader_over(SLOW if slow == "copy" else 0, 2, monkeypatch)
    found: list[bool] = []
    waiting: list[Any] = []
    take: Callable[..., Any] = prefetching._next

    def noted(futures: Any, process: int) -> Any:
        found.append(futures[0].done())
        waiting[:] = futures
        return take(futures, process)

    monkeypatch.setattr(prefetching, "_next", noted)
    for _ in loader:
        while not all(future.done() for future in waiting):
            time.sleep(0.001)
    assert found[1:] == [True] * STEPS  # and once more for the end


def test_resident_columns_leave_nothing_to_copy_but_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gather happens in the loop, and counts as gather."""
    loader = loader_over(0, 0, monkeypatch, resident=True)
    list(loader)
    stats = loader.stats()
    check_parts(stats)
    assert 0 < stats["gather_seconds"] <= stats["wait_seconds"]
    assert stats["gigabytes_per_second"] * stats["gather_seconds"] * 1e9 == pytest.approx(96 * 5 * 8)
