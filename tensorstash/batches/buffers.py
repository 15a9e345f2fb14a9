"""Host memory for batches: reused once nothing refers to it, or staging memory that is copied to a device.

With fresh memory for each batch, page faults would cost more than the gather itself.
"""

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.devices import Copies, Event
from tensorstash.common.dtypes import DTYPES
from tensorstash.gather.gather import GatherPlan
from tensorstash.gather.layout import as_batch, as_batches
from tensorstash.segments.limits import no_room_for_batch

_CACHE_LINE = 64  # bytes

Batch = dict[str, torch.Tensor]


class Pending(Protocol):
    """A batch on its way to the loop."""

    def complete(self) -> Batch:
        """Finish the batch in the thread and the stream of the loop: wait for its copy, or gather it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A batch that could not be made; those before it are handed out first."""

    error: Exception

    def complete(self) -> Batch:
        """Raise what went wrong."""
        raise self.error


class _Lease(weakref.ref["NDArray[Any]"]):
    """A view that was handed out, and the buffer that it shows."""

    __slots__ = ("buffer",)
    buffer: NDArray[Any]


class _Kept(weakref.ref["NDArray[Any]"]):
    """Keeps the lease of a view alive until the view is gone. It compares by identity, so a set can hold it."""

    __slots__ = ("lease",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    lease: _Lease


class Pool:
    """Host buffers that are reused when the last tensor, slice, array, graph or capsule over them is gone.

    A buffer is handed out as a tensor over a fresh numpy view. The tensor's storage keeps that view alive, and every
    user of the memory keeps the storage alive, so the view dies with the last user.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, spare: int) -> None:
        """A pool of buffers of several times `shape`; it keeps at most `spare` idle buffers."""
        self.idle: deque[_Lease] = deque(maxlen=spare)
        self._kept: set[_Kept] = set()
        self._rows, *self._rest = shape
        self._dtype = dtype if dtype == torch.bfloat16 else None  # numpy has no bfloat16
        self._numpy = np.dtype(DTYPES[dtype][1])

    def take(self, count: int) -> torch.Tensor:
        """An uninitialised tensor of `count` times the shape, along its first dimension."""
        rows = self._rows * count
        buffer = self.idle.pop().buffer if self.idle else None
        if buffer is None or len(buffer) < rows:  # a buffer that was too small is dropped
            wanted = rows if buffer is None else rows + rows // 8  # the next may need some more
            buffer = _aligned((wanted, *self._rest), self._numpy)
        view = buffer[:rows]
        # the buffer comes back when the view is gone; both callbacks are C: see `segments.segment.close_with`
        kept = _Kept(view, self._kept.discard)
        kept.lease = _Lease(view, self.idle.append)
        kept.lease.buffer = buffer
        self._kept.add(kept)
        tensor = torch.from_numpy(view)
        return tensor if self._dtype is None else tensor.view(self._dtype)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that begins at a cache line: copying rows to other addresses costs a tenth more."""
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        room = np.empty(nbytes + _CACHE_LINE, np.uint8)
    except (MemoryError, ValueError) as error:  # numpy's ValueError: more than any array can have
        raise no_room_for_batch(nbytes) from error
    start = -room.ctypes.data % _CACHE_LINE
    return room[start : start + nbytes].view(dtype).reshape(shape)


class Recycled:
    """Memory of batches that stay on the host: they are handed out as they were gathered."""

    def __init__(self, plan: GatherPlan, spare: int, early: Callable[[Batch], Batch | Pending] | None = None) -> None:
        """`early` is called on each batch, in the thread that makes it."""
        self._early = early
        self.pools = [Pool(group.buffer_shape(1), group.dtype, spare) for group in plan.groups]
        self._plan = plan
        self.entries = Entries(spare)

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in a batch of `count` windows."""
        return [pool.take(count) for pool in self.pools]

    def finish(
        self, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor], variates: Sequence[Batch]
    ) -> Sequence[Batch | Pending]:
        """The batches of some steps: of the filled buffers and of other tensors, which stay on the host.

        `variates` are the entries of each step that have a row for each column of each window.
        """
        batches = as_batches(self._plan.groups, self._plan.names, buffers, rest, len(variates))
        for batch, entries in zip(batches, variates):
            batch.update(entries)
        return batches if self._early is None else [self._early(batch) for batch in batches]

    def copy_seconds(self) -> float:
        """Time for copies to a device: there are none."""
        return 0.0


class Entries:
    """Memory of entries that transforms make, recycled by name; their number of rows may vary."""

    def __init__(self, spare: int) -> None:
        self._pools: dict[tuple[str, tuple[int, ...], torch.dtype], Pool] = {}
        self._spare = spare

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor."""
        if dtype not in DTYPES:  # no column has this dtype, so a transform has cast to it
            return torch.empty(shape, dtype=dtype)
        key = (name, shape[1:], dtype)
        if key not in self._pools:
            self._pools[key] = Pool((1, *shape[1:]), dtype, self._spare)
        return self._pools[key].take(shape[0])


@dataclass(frozen=True, slots=True)
class Sent:
    """Tensors that are being copied to the device."""

    tensors: list[torch.Tensor]
    beside: Sequence[torch.Tensor]  # other memory that is used with them
    copies: Copies
    event: Event

    def wait(self) -> None:
        """Let the stream of the loop wait for the copies."""
        self.copies.wait(self.event, [*self.tensors, *self.beside])


@dataclass(frozen=True, slots=True)
class Copied:
    """A batch that is being copied to the device."""

    batch: Batch
    sent: Sent

    def complete(self) -> Batch:
        """Wait for the copy."""
        self.sent.wait()
        return self.batch


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
        memory = parts[k]
        if len(memory) < shape[0] or memory.shape[1:] != torch.Size(shape[1:]) or memory.dtype != dtype:
            memory = parts[k] = self._copies.stage(shape, dtype)
        return memory[: shape[0]]

    def send(self, staged: Sequence[torch.Tensor], beside: Sequence[torch.Tensor] = ()) -> Sent:
        """Begin to copy the filled parts, all in one way. `beside` is other memory that is used with the copies."""
        with self._timed():
            copied = self._copies.copy(staged)
            event = self._stages[0].copied = self._copies.record()
        self._stages.rotate(-1)
        return Sent(copied, beside, self._copies, event)

    def copy_in(self, tensors: Sequence[torch.Tensor], beside: Sequence[torch.Tensor] = ()) -> Sent:
        """Copy tensors into the next staging memory, and from there to the device."""
        self.begin()
        staged = [self.part(k, tensor.shape, tensor.dtype).copy_(tensor) for k, tensor in enumerate(tensors)]
        return self.send(staged, beside)

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

    def __init__(
        self,
        plan: GatherPlan,
        staging: Staging,
        casts: Mapping[str, torch.dtype],
        early: Callable[[Batch], Batch] | None = None,
    ) -> None:
        """The entries of a batch that `casts` names are written into staging memory in another dtype.

        `early` is called on a batch before that.
        """
        self._plan = plan
        self._staging = staging
        self._casts = casts
        self._early = early
        self._gathered = Recycled(plan, spare=1) if casts or early else None  # holds batches until then
        self.entries = Entries(1)

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in a batch of `count` windows."""
        self._staging.begin()
        if self._gathered is not None:
            return self._gathered.take(count)
        groups = enumerate(self._plan.groups)
        return [self._staging.part(k, group.buffer_shape(count), group.dtype) for k, group in groups]

    def finish(
        self, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor], variates: Sequence[Batch]
    ) -> list[Copied]:
        """The batch of the filled buffers and of its other tensors, which is being copied to the device."""
        (entries,) = variates  # each batch is copied by itself
        rest = {**rest, **entries}
        if self._gathered is not None:
            buffers, rest = [], as_batch(self._plan.groups, self._plan.names, buffers) | dict(rest)
            rest = rest if self._early is None else self._early(rest)
        staged = [*buffers]
        # entries that share a tensor share one on the device: jagged tensors can be added only with the same offsets
        numbers: dict[tuple[int, torch.dtype], int] = {}
        places: dict[str, int] = {}
        for name, tensor in rest.items():
            dtype = self._casts.get(name, tensor.dtype)
            places[name] = numbers.setdefault((id(tensor), dtype), len(staged))
            if places[name] == len(staged):
                staged.append(self._staging.part(len(staged), tensor.shape, dtype).copy_(tensor))
        sent = self._staging.send(staged)
        batch = as_batch(self._plan.groups, self._plan.names, sent.tensors[: len(buffers)]) if buffers else {}
        batch.update((name, sent.tensors[k]) for name, k in places.items())
        return [Copied(batch, sent)]

    def copy_seconds(self) -> float:
        """Time so far in which the making of batches waited for copies, or made them."""
        return self._staging.copy_seconds()
