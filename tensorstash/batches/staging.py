"""Batches on their way to a device: staging memory, which is never handed out, and the copies out of it.

A batch is first made completely on the host, and then all its tensors are sent together, so that none arrives later
than others.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from tensorstash.batches.devices import Copies, Event
from tensorstash.batches.host import Entries, Pending, Recycled
from tensorstash.common.records import Record, arrays_of, each_array
from tensorstash.gather.gather import GatherPlan, groups_of, names_of
from tensorstash.gather.layout import Batch, as_batch

Wait = Callable[[], None]  # lets the stream of the loop wait for copies


@dataclass(slots=True)
class _Stage:
    """Staging memory that is copied at once: a tensor for each part, at least as long as the part."""

    parts: list[torch.Tensor] = field(default_factory=list)
    copied: Event | None = None  # the event of the last copy out of this memory


class Staging:
    """Staging memory of a few copies. It is filled again only after the event of its last copy."""

    def __init__(self, copies: Copies, stages: int) -> None:
        """`stages` is how many batches may be filled or copied at a time."""
        self.copies = copies
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
            parts.append(self.copies.stage(shape, dtype))
        memory = parts[k]
        if len(memory) < shape[0] or memory.shape[1:] != torch.Size(shape[1:]) or memory.dtype != dtype:
            memory = parts[k] = self.copies.stage(shape, dtype)
        return memory[: shape[0]]

    def send(
        self, staged: Sequence[torch.Tensor], beside: Sequence[torch.Tensor] = ()
    ) -> tuple[list[torch.Tensor], Wait]:
        """Begin to copy the filled parts, all in one way. `beside` is other memory that is used with the copies."""
        with self._timed():
            copied = self.copies.copy(staged)
            event = self._stages[0].copied = self.copies.record()
        self._stages.rotate(-1)
        return copied, partial(self.copies.wait, event, [*copied, *beside])

    def copy_in(self, record: Record, beside: Sequence[torch.Tensor] = ()) -> tuple[Record, Wait | None]:
        """The record with its arrays on their way to the device, through the next staging memory, if it has any."""
        arrays = arrays_of(record)
        if not arrays:
            return record, None
        self.begin()
        # copied, because some are read-only views of one row
        given = [torch.from_numpy(np.array(a)) if isinstance(a, np.ndarray) else a for a in arrays]
        sent, wait = self.send([self.part(k, a.shape, a.dtype).copy_(a) for k, a in enumerate(given)], beside)
        there = iter(sent)
        return each_array(record, lambda _: next(there)), wait

    def seconds(self) -> float:
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

    one_by_one = True  # each step is copied by itself

    def __init__(
        self,
        plans: Sequence[GatherPlan],
        staging: Staging,
        early: Callable[[Batch], Batch] | None,
    ) -> None:
        """`early` is called on a batch before its entries are written into staging memory."""
        self._groups, self._names = groups_of(plans), names_of(plans)
        self._staging = staging
        self._early = early
        self._gathered = Recycled(plans, 1, Entries(1)) if early else None  # holds batches until then
        self.entries = Entries(1)

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in a batch of `count` windows."""
        self._staging.begin()
        if self._gathered is not None:
            return self._gathered.take(count)
        groups = enumerate(self._groups)
        return [self._staging.part(k, group.buffer_shape(count), group.dtype) for k, group in groups]

    def finish(self, buffers: Sequence[torch.Tensor], rest: Batch, variates: Sequence[Batch]) -> list[Batch | Pending]:
        """The batch of filled buffers and of its other tensors, which is being copied to the device."""
        (entries,) = variates  # each batch is copied by itself
        filled, others = buffers, rest | entries
        if self._early is not None:
            filled, others = [], self._early(as_batch(self._groups, self._names, buffers) | others)
        staged = [*filled]
        # entries that share a tensor share one on the device: jagged tensors can be added only with the same offsets
        numbers: dict[int, int] = {}  # of each among those that are staged
        for tensor in others.values():
            if numbers.setdefault(id(tensor), len(staged)) == len(staged):
                staged.append(self._staging.part(len(staged), tensor.shape, tensor.dtype).copy_(tensor))
        sent, wait = self._staging.send(staged)
        batch = as_batch(self._groups, self._names, sent[: len(filled)]) if filled else {}
        batch.update((name, sent[numbers[id(tensor)]]) for name, tensor in others.items())
        return [Pending(partial(_arrived, batch, wait))]


def _arrived(batch: Batch, wait: Wait) -> Batch:
    """The batch once it is copied."""
    wait()
    return batch
