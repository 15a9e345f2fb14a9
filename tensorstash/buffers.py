"""Memory for batches: recycled when nobody can see it any more, or pinned and copied to a GPU from.

A fresh result per batch costs more in page faults than the gather itself.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from tensorstash.gather import GatherPlan, as_batch, select

Built = tuple[dict[str, torch.Tensor], Callable[[], None]]  # a batch, and what to call before it is used


class Pool:
    """Host buffers that are used again when the last tensor, slice, array, graph or capsule over them is gone.

    Each is handed out as a tensor over a fresh numpy view of it. The storage keeps that view alive, and everything that
    sees the memory keeps the storage alive, so the end of the view is the end of the last user.
    """

    def __init__(self, spare: int) -> None:
        """At most `spare` idle buffers are kept."""
        self.idle: deque[np.ndarray[tuple[int], np.dtype[np.uint8]]] = deque(maxlen=spare)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = None
        while self.idle and (buffer is None or len(buffer) < nbytes):
            buffer = self.idle.pop()
        if buffer is None or len(buffer) < nbytes:
            buffer = np.empty(nbytes, np.uint8)
        view = buffer[:nbytes]
        weakref.finalize(view, self.idle.append, buffer).atexit = False
        return torch.from_numpy(view).view(dtype).view(shape)


class HostBatches:
    """Batches in recycled host memory, moved on to a device other than CUDA if there is one."""

    def __init__(self, plan: GatherPlan, device: torch.device, spare: int) -> None:
        self.plan = plan
        self.device = device
        self.pools = [Pool(spare) for _ in plan.selections]

    def build(self, anchors: torch.Tensor) -> Built:
        """The batch of the windows at these anchors, `(batch,)` int64."""
        buffers = [
            pool.take(selection.buffer_shape(len(anchors)), selection.view.dtype)
            for pool, selection in zip(self.pools, self.plan.selections)
        ]
        select(self.plan, anchors, buffers)
        if self.device.type != "cpu":
            buffers = [buffer.to(self.device) for buffer in buffers]
        return as_batch(self.plan, buffers), _ready


class CudaBatches:
    """Batches copied from pinned staging buffers on a stream of their own, while the model computes.

    A staging buffer is never handed out, and is filled again only after the event of its last copy.
    """

    def __init__(self, plan: GatherPlan, device: torch.device, stages: int) -> None:
        self.plan = plan
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.stages: deque[tuple[torch.cuda.Event, list[torch.Tensor]]] = deque(
            (torch.cuda.Event(), [])  # type: ignore[no-untyped-call]
            for _ in range(stages)
        )

    def build(self, anchors: torch.Tensor) -> Built:
        """The batch of the windows at these anchors, `(batch,)` int64; its copy may still be under way."""
        event, pinned = self.stages.popleft()
        event.synchronize()
        shapes = [selection.buffer_shape(len(anchors)) for selection in self.plan.selections]
        if not pinned or any(len(buffer) < shape[0] for buffer, shape in zip(pinned, shapes)):
            views = (selection.view for selection in self.plan.selections)
            pinned = [torch.empty(shape, dtype=view.dtype, pin_memory=True) for view, shape in zip(views, shapes)]
        filled = [buffer[: shape[0]] for buffer, shape in zip(pinned, shapes)]
        select(self.plan, anchors, filled)
        with torch.cuda.stream(self.stream):
            moved = [buffer.to(self.device, non_blocking=True) for buffer in filled]
            event.record(self.stream)
        self.stages.append((event, pinned))
        return as_batch(self.plan, moved), lambda: _wait(event, moved, self.device)


def _ready() -> None:
    """Nothing is under way when a batch of the host has been built."""


def _wait(event: torch.cuda.Event, moved: Sequence[torch.Tensor], device: torch.device) -> None:
    """Let the caller's stream wait for a copy, and tell the allocator that it uses the memory."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(event)
    for tensor in moved:
        tensor.record_stream(stream)
