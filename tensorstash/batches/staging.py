"""Staging memory: all tensors of a batch are copied to the device from here."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from tensorstash.batches.buffers import Built, Recycled
from tensorstash.batches.devices import Copies, Event
from tensorstash.gather.gather import GatherPlan, as_batch

# tensors on the device, and a function that the loop calls before it uses them
Sent = tuple[list[torch.Tensor], Callable[[], None]]


@dataclass(slots=True)
class _Stage:
    """Staging memory that is copied at once: a tensor for each part, at least as long as the part."""

    parts: list[torch.Tensor] = field(default_factory=list)
    copied: Event | None = None  # the event of the last copy out of this memory


class Staging:
    """Staging memory of a few copies. It is filled again only after the event of its last copy."""

    def __init__(self, copies: Copies, stages: int) -> None:
        """`stages` is how many batches may be filled or copied at a time."""
        self._copies = copies
        self._stages = deque(_Stage() for _ in range(stages))
        # seconds, and since when more are being added; one tuple, because the loop reads it while a thread writes it
        self._copying: tuple[float, float | None] = (0.0, None)

    def begin(self) -> None:
        """Wait until the next staging memory may be filled."""
        copied = self._stages[0].copied
        if copied is not None:
            with self._timed():
                copied.synchronize()

    def part(self, k: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Part k of the present memory for a tensor of that shape; most tensors differ in their number of rows only."""
        parts = self._stages[0].parts
        if k == len(parts):
            parts.append(self._copies.stage(shape, dtype))
        own = parts[k]
        if len(own) < shape[0] or own.shape[1:] != torch.Size(shape[1:]) or own.dtype != dtype:
            own = parts[k] = self._copies.stage(shape, dtype)
        return own[: shape[0]]

    def send(self, staged: Sequence[torch.Tensor], beside: Sequence[torch.Tensor] = ()) -> Sent:
        """Begin to copy the filled parts, all in one way. `beside` is other memory that is used with the copies."""
        with self._timed():
            copied = self._copies.copy(staged)
            event = self._stages[0].copied = self._copies.record()
        self._stages.rotate(-1)
        return copied, partial(self._copies.wait, event, [*copied, *beside])

    def copy_seconds(self) -> float:
        """Time so far in which the thread that fills the memory waited for copies, or made them."""
        total, since = self._copying
        return total if since is None else total + time.perf_counter() - since

    @contextmanager
    def _timed(self) -> Iterator[None]:
        total, began = self._copying[0], time.perf_counter()
        self._copying = total, began
        try:
            yield
        finally:
            self._copying = total + time.perf_counter() - began, None


class Staged:
    """Memory of batches that go to a device. Staging memory is never handed out."""

    def __init__(self, plan: GatherPlan, staging: Staging, casts: Mapping[str, torch.dtype]) -> None:
        """The entries of a batch that `casts` names are written into staging memory in another dtype."""
        self._plan = plan
        self._staging = staging
        self._casts = casts
        self._gathered = Recycled(plan, spare=1) if casts else None  # where batches lie before the cast

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in a batch of `count` windows."""
        self._staging.begin()
        if self._gathered is not None:
            return self._gathered.take(count)
        groups = enumerate(self._plan.groups)
        return [self._staging.part(k, group.buffer_shape(count), group.view.dtype) for k, group in groups]

    def finish(self, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor]) -> Built:
        """The batch of the filled buffers and of its other tensors, which is being copied to the device."""
        if self._gathered is not None:
            buffers, rest = [], as_batch(self._plan, buffers) | dict(rest)
        staged = [*buffers]
        for name, tensor in rest.items():
            dtype = self._casts.get(name, tensor.dtype)
            staged.append(self._staging.part(len(staged), tensor.shape, dtype).copy_(tensor))
        copied, arrive = self._staging.send(staged)
        batch = as_batch(self._plan, copied[: len(buffers)]) if buffers else {}
        batch.update(zip(rest, copied[len(buffers) :]))
        return batch, arrive

    def copy_seconds(self) -> float:
        """Time so far in which the making of batches waited for copies, or made them."""
        return self._staging.copy_seconds()
