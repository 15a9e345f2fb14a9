"""Host memory for batches, reused once nothing refers to it any more.

A fresh result per batch costs more in page faults than the gather itself.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import DTYPES
from tensorstash.gather.gather import GatherPlan, SpanGroup, as_batch

_CACHE_LINE = 64  # bytes

Batch = dict[str, torch.Tensor]
# a batch, and a function that the loop calls before it uses the batch, if there is anything to wait for
Built = tuple[Batch, Callable[[], None] | None]


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

    def __init__(self, group: SpanGroup, spare: int) -> None:
        """A pool of buffers for one group of spans; it keeps at most `spare` idle buffers."""
        self.idle: deque[_Lease] = deque(maxlen=spare)
        self._kept: set[_Kept] = set()
        self._spans, *self._rest = group.buffer_shape(1)
        self._dtype = group.view.dtype if group.view.dtype == torch.bfloat16 else None  # numpy has no bfloat16
        self._numpy = np.dtype(DTYPES[group.view.dtype][1])

    def take(self, count: int) -> torch.Tensor:
        """An uninitialised tensor for the spans of the group in a batch of `count` windows."""
        rows = self._spans * count
        buffer = self.idle.pop().buffer if self.idle else None
        if buffer is None or len(buffer) < rows:  # a buffer that was too small is dropped
            buffer = _aligned((rows, *self._rest), self._numpy)
        view = buffer[:rows]
        self._lend(view, buffer)
        tensor = torch.from_numpy(view)
        return tensor if self._dtype is None else tensor.view(self._dtype)

    def _lend(self, view: NDArray[Any], buffer: NDArray[Any]) -> None:
        """Take the buffer back when the view is gone. Both callbacks are C: see `common/release.py`."""
        kept = _Kept(view, self._kept.discard)
        kept.lease = _Lease(view, self.idle.append)
        kept.lease.buffer = buffer
        self._kept.add(kept)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that begins at a cache line: copying rows to other addresses costs a tenth more."""
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + _CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % _CACHE_LINE
    return room[begin : begin + nbytes].view(dtype).reshape(shape)


class Recycled:
    """Memory of batches that stay on the host: they are handed out as they were gathered."""

    def __init__(self, plan: GatherPlan, spare: int) -> None:
        self.pools = [Pool(group, spare) for group in plan.groups]
        self._plan = plan

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in a batch of `count` windows."""
        return [pool.take(count) for pool in self.pools]

    def finish(self, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor]) -> Built:
        """The batch of the filled buffers and of its other tensors, which stay on the host."""
        batch = as_batch(self._plan, buffers)
        batch.update(rest)
        return batch, None

    def copy_seconds(self) -> float:
        """Time for copies to a device: there are none."""
        return 0.0
