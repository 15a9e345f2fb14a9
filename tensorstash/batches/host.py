"""Batches gathered on the host, a few steps at a time, and the memory of those that stay there.

Small batches of a few steps are made as one and cut into batches, because most of their cost is the time per call. With
fresh memory for each batch, page faults would cost more than the gather itself, so memory is used again once nothing
refers to it.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.read_ahead import Portion, read_ahead
from tensorstash.common.dtypes import DTYPES
from tensorstash.common.records import some_of
from tensorstash.gather.gather import GatherPlan, gather_into, groups_of, names_of
from tensorstash.gather.layout import Batch, as_batches
from tensorstash.sampling.steps import Steps
from tensorstash.segments.limits import no_room_for_batch
from tensorstash.windows.chain import Located
from tensorstash.windows.contents import Contents

if TYPE_CHECKING:
    from tensorstash.batches.staging import Staged

_CACHE_LINE = 64  # bytes
_MOST_TOGETHER = 128  # steps: more save hardly any time
_BYTES_TOGETHER = 1 << 22  # the fixed time of a call is little beside that of so many, and several threads share them


class Pending(NamedTuple):
    """A batch that the loop finishes, in its thread and stream: it waits for the copy, or gathers."""

    finish: Callable[[], Batch]


# some of the steps that were located together, and their batches
Gathered = tuple[Steps, range, list[Batch | Pending]]


def together(batch_bytes: int) -> int:
    """How many batches of that size are made together, in one buffer."""
    return max(1, min(_MOST_TOGETHER, _BYTES_TOGETHER // max(1, batch_bytes)))


def host_batches(
    contents: Contents,
    groups: Iterable[tuple[Steps, Located]],
    memory: "Recycled | Staged",
    *,
    on_disk: bool,
) -> Iterator[Gathered]:
    """The batches of all steps, in whichever thread iterates; `on_disk` asks for the pages of those that follow.

    `memory` is where they are gathered: memory that stays on the host, or that is copied from.
    """
    portions = _portions(contents, groups, memory)
    for steps, some, located in read_ahead(contents.chain, portions) if on_disk else portions:
        yield steps, some, _gathered(contents, located, len(some), memory)  # which the loop takes away


def _portions(
    contents: Contents, groups: Iterable[tuple[Steps, Located]], memory: "Recycled | Staged"
) -> Iterator[Portion]:
    """The steps in portions that are made in one call."""
    for steps, located in groups:
        count, batch = steps.ids.shape
        left = range(count)
        most = 1 if memory.one_by_one else together(batch * contents.window_bytes)
        while left:
            some, left = left[:most], left[most:]
            yield steps, some, some_of(located, steps.windows(some))


def _gathered(contents: Contents, located: Located, steps: int, memory: "Recycled | Staged") -> list[Batch | Pending]:
    """The batches of some steps. Nothing else keeps their memory when this has returned."""
    buffers = memory.take(len(located.ids))
    rest = gather_into(buffers, contents.plans, contents.chain.rows(located), located.component)
    rest.update(contents.beside(located))
    return memory.finish(buffers, rest, _variates(contents, located, steps, memory))


def _variates(contents: Contents, located: Located, steps: int, memory: "Recycled | Staged") -> list[Batch]:
    """The entries of spans of `ts.each` in the batch of each step."""
    if not contents.variate_plans:
        return [Batch()] * steps
    count = len(located.ids) // steps
    of_steps = [some_of(located, slice(first, first + count)) for first in range(0, len(located.ids), count)]
    return [contents.of_rows(of_step, memory.entries.take) for of_step in of_steps]


class _Lease(weakref.ref["NDArray[Any]"]):
    """A view that was handed out, and what is kept for it. It compares by identity, so a set can hold it."""

    __slots__ = ("kept",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    kept: Any


class Pool:
    """Host buffers that are reused when the last tensor, slice, array, graph or capsule over them is gone.

    A buffer is handed out as a tensor over a fresh numpy view. The tensor's storage keeps that view alive, and every
    user of the memory keeps the storage alive, so the view dies with the last user. `share_memory_` moves the values of
    a storage, with all batches in it, but arrays and capsules still point to the buffer, so the view is kept even then.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, spare: int) -> None:
        """A pool of buffers of several times `shape`; it keeps at most `spare` idle buffers."""
        self.idle: deque[_Lease] = deque(maxlen=spare)
        self._lent = set[_Lease]()
        self._rows, *self._rest = shape
        self._dtype = dtype if dtype == torch.bfloat16 else None  # numpy has no bfloat16
        self._numpy = np.dtype(DTYPES[dtype][1])

    def take(self, count: int) -> torch.Tensor:
        """An uninitialised tensor of `count` times the shape, along its first dimension."""
        rows = self._rows * count
        buffer = self.idle.pop().kept if self.idle else None
        if buffer is None or len(buffer) < rows:  # a buffer that was too small is dropped
            wanted = rows if buffer is None else rows + rows // 8  # the next may need some more
            buffer = _aligned((wanted, *self._rest), self._numpy)
        view = buffer[:rows]
        # when the view is gone, one lease brings the buffer back; the other one keeps it alive until then
        # both callbacks are C: see `segments.segment.close_with`
        lent, back = _Lease(view, self._lent.discard), _Lease(view, self.idle.append)
        lent.kept, back.kept = back, buffer
        self._lent.add(lent)
        tensor = torch.from_numpy(view)
        tensor.untyped_storage().tensorstash_view = view  # type: ignore[attr-defined]
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

    one_by_one = False  # steps that take little memory are made in one call

    def __init__(
        self,
        plans: Sequence[GatherPlan],
        spare: int,
        entries: "Entries",
        early: Callable[[Batch], Batch | Pending] | None = None,
    ) -> None:
        """`entries` is memory of what is made for each step. `early` is called on each batch, where it is made."""
        self._early = early
        self.pools = [Pool(group.buffer_shape(1), group.dtype, spare) for group in groups_of(plans)]
        self._groups, self._names = groups_of(plans), names_of(plans)
        self.entries = entries

    def take(self, count: int) -> list[torch.Tensor]:
        """A buffer for each group of spans in batches of `count` windows together."""
        return [pool.take(count) for pool in self.pools]

    def finish(self, buffers: Sequence[torch.Tensor], rest: Batch, variates: Sequence[Batch]) -> list[Batch | Pending]:
        """The batches of some steps: of filled buffers and of other tensors, which stay on the host.

        `variates` are the entries of each step that have a row for each column of each window.
        """
        batches = as_batches(self._groups, self._names, buffers, rest, len(variates))
        if any(variates):
            for batch, entries in zip(batches, variates):
                batch.update(entries)
        return [*batches] if self._early is None else [*map(self._early, batches)]


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
