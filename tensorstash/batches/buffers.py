"""Memory for batches: recycled when nobody can see it any more, or pinned and copied to a GPU from.

A fresh result per batch costs more in page faults than the gather itself.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import DTYPES
from tensorstash.gather.gather import BatchIndex, GatherPlan, SpanGroup, as_batch, select

_CACHE_LINE = 64  # bytes

Built = tuple[dict[str, torch.Tensor], Callable[[], None]]  # a batch, and what to call before it is used


class _Lease(weakref.ref["NDArray[Any]"]):
    """A view that was handed out, and the buffer that it shows."""

    __slots__ = ("buffer",)
    buffer: NDArray[Any]


class _Kept(weakref.ref["NDArray[Any]"]):
    """Keeps the lease of a view alive until the view is gone. It is equal to itself alone, so a set can hold it."""

    __slots__ = ("lease",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    lease: _Lease


class Pool:
    """Host buffers that are used again when the last tensor, slice, array, graph or capsule over them is gone.

    Each is handed out as a tensor over a fresh numpy view of it. The storage keeps that view alive, and everything that
    sees the memory keeps the storage alive, so the end of the view is the end of the last user.
    """

    def __init__(self, spare: int) -> None:
        """At most `spare` idle buffers are kept."""
        self.idle: deque[_Lease] = deque(maxlen=spare)
        self._kept: set[_Kept] = set()

    def take(self, group: SpanGroup, count: int) -> torch.Tensor:
        """An uninitialised tensor for what is selected for `count` windows."""
        rows, *rest = group.buffer_shape(count)
        buffer = self.idle.pop().buffer if self.idle else None
        if buffer is None or len(buffer) < rows:  # a buffer that was too small is dropped
            buffer = _aligned((rows, *rest), np.dtype(DTYPES[group.view.dtype][1]))
        view = buffer[:rows]
        self._lend(view, buffer)
        tensor = torch.from_numpy(view)
        return tensor if tensor.dtype == group.view.dtype else tensor.view(group.view.dtype)

    def _lend(self, view: NDArray[Any], buffer: NDArray[Any]) -> None:
        """Take the buffer back when the view is gone. Both callbacks are C: see `common/release.py`."""
        kept = _Kept(view, self._kept.discard)
        kept.lease = _Lease(view, self.idle.append)
        kept.lease.buffer = buffer
        self._kept.add(kept)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that begins at a cache line: rows copied to elsewhere cost a tenth more."""
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + _CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % _CACHE_LINE
    return room[begin : begin + nbytes].view(dtype).reshape(shape)


class HostBatches:
    """Batches in recycled host memory, moved on to a device other than CUDA if there is one."""

    def __init__(self, plan: GatherPlan, device: torch.device, spare: int) -> None:
        self.plan = plan
        self.device = device
        self.pools = [Pool(spare) for _ in plan.groups]

    def build(self, places: BatchIndex, count: int) -> Built:
        """The batch of `count` windows that are at these places."""
        buffers = [pool.take(group, count) for pool, group in zip(self.pools, self.plan.groups)]
        observed = select(self.plan, places, buffers)
        if self.device.type != "cpu":
            buffers = [buffer.to(self.device) for buffer in buffers]
            observed = {name: seen.to(self.device) for name, seen in observed.items()}
        return as_batch(self.plan, buffers) | observed, _ready


class CudaBatches:
    """Batches copied from pinned staging buffers on a stream of their own, while the model computes.

    A staging buffer is never handed out, and is filled again only after the event of its last copy.
    """

    def __init__(self, plan: GatherPlan, device: torch.device, stages: int) -> None:
        self.plan = plan
        self.device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.stages: deque[tuple[torch.cuda.Event, list[torch.Tensor]]] = deque(
            (torch.cuda.Event(), [])  # type: ignore[no-untyped-call]
            for _ in range(stages)
        )

    def build(self, places: BatchIndex, count: int) -> Built:
        """The batch of `count` windows that are at these places; its copy may still be under way."""
        event, pinned = self.stages.popleft()
        event.synchronize()
        shapes = [group.buffer_shape(count) for group in self.plan.groups]
        if not pinned or any(len(buffer) < shape[0] for buffer, shape in zip(pinned, shapes)):
            views = (group.view for group in self.plan.groups)
            pinned = [torch.empty(shape, dtype=view.dtype, pin_memory=True) for view, shape in zip(views, shapes)]
        filled = [buffer[: shape[0]] for buffer, shape in zip(pinned, shapes)]
        observed = select(self.plan, places, filled)
        with torch.cuda.stream(self.stream):
            moved = [buffer.to(self.device, non_blocking=True) for buffer in filled]
            seen = {name: one.to(self.device) for name, one in observed.items()}
            event.record(self.stream)
        self.stages.append((event, pinned))
        copied = [*moved, *seen.values()]
        return as_batch(self.plan, moved) | seen, lambda: _wait(event, copied, self.device)


def _ready() -> None:
    """Nothing is under way when a batch of the host has been built."""


def _wait(event: torch.cuda.Event, moved: Sequence[torch.Tensor], device: torch.device) -> None:
    """Let the caller's stream wait for a copy, and tell the allocator that it uses the memory."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(event)
    for tensor in moved:
        tensor.record_stream(stream)
