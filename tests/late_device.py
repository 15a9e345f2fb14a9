"""A device of the tests whose copies are late: what is used too early, or overwritten too early, shows as poison.

It stands where streams do inside (`tensorstash.batches.devices.Copies`). A copy is made only when something waits
for its event. Staging memory is poisoned as soon as the host may fill it again. Memory of a copy that
nobody sees any more goes back to the allocator, which poisons it at once, unless it was told that the stream of the
loop uses it.
"""

import weakref
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.devices import Copies, Event

POISON = 0xA5

Memory = NDArray[np.uint8]


class Copy:
    """One copy, which the device makes between the moment that something waits for it and the end that the host sees.

    The stream of the loop waits on the device, of which the host knows nothing: until the host has waited too, the
    device may still read the staging memory.
    """

    def __init__(self, staged: torch.Tensor, memory: Memory) -> None:
        self._staged = staged.view(-1).view(torch.uint8).numpy()
        self._memory = memory
        self._read = self._staged[:0]
        self._begun = self._over = False
        self.torn = False  # whether the staging memory was filled again while the device might still read it

    def begin(self) -> None:
        if not self._begun:
            self._read = self._staged.copy()
            self._memory[:] = self._read
            self._begun = True

    def end(self) -> None:
        if self._over:
            return
        self.begin()
        if not np.array_equal(self._staged, self._read):
            self._memory[:] = POISON
            self.torn = True
        self._staged[:] = POISON
        self._over = True


class Queue:
    """The copies of one stream, in order."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self._lock = Lock()  # the loop and the thread that prefetches may wait at the same time

    def begin(self, copies: Sequence[Copy]) -> None:
        with self._lock:
            for copy in copies:
                copy.begin()

    def end(self, copies: Sequence[Copy]) -> None:
        with self._lock:
            for copy in copies:
                copy.end()


class LateEvent:
    """The end of the copies that were begun before it."""

    def __init__(self, queue: Queue, before: Sequence[Copy]) -> None:
        self.queue = queue
        self.before = before

    def synchronize(self) -> None:
        self.queue.end(self.before)


class LateCopies:
    """Copies that are made when their event is waited for, and not before."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.memory: dict[int, Memory] = {}  # of every copy, by its address
        self.freed = 0  # how many of them went back to the allocator
        self._in_use: set[int] = set()  # addresses of copies that the stream of the loop uses

    def stage(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return _poisoned(torch.empty(tuple(shape), dtype=dtype))

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [self._begun(tensor) for tensor in staged]

    def record(self) -> Event:
        return LateEvent(self.queue, [*self.queue.copies])

    def wait(self, event: Event, copied: Sequence[torch.Tensor]) -> None:
        self.arrive(event)
        self.use(copied)

    def arrive(self, event: Event) -> None:
        """Let the stream of the loop wait."""
        assert isinstance(event, LateEvent)
        self.queue.begin(event.before)

    def finish(self) -> None:
        """The device does all that is left."""
        self.queue.end(self.queue.copies)

    def use(self, copied: Sequence[torch.Tensor]) -> None:
        """The stream of the loop uses this memory."""
        self._in_use.update(tensor.data_ptr() for tensor in copied)

    def unused(self) -> int:
        """Copies that nobody has declared to be in use by the stream of the loop."""
        return len(self.memory.keys() - self._in_use)

    def used(self, tensor: torch.Tensor) -> bool:
        """Whether somebody has declared the memory to be in use by the stream of the loop."""
        return tensor.untyped_storage().data_ptr() in self._in_use

    def torn(self) -> int:
        """Copies out of staging memory that was filled again too early."""
        return sum(copy.torn for copy in self.queue.copies)

    def behind(self, tensor: torch.Tensor) -> Memory:
        """The memory of a tensor that is a view of a copy, for work that the loop has queued and not yet done."""
        at = tensor.data_ptr()
        return next(memory for start, memory in self.memory.items() if start <= at < start + len(memory))

    def _begun(self, staged: torch.Tensor) -> torch.Tensor:
        memory = np.full(staged.nbytes, POISON, np.uint8)
        self.memory[memory.ctypes.data] = memory
        view = memory[:]
        weakref.finalize(view, self._free, memory).atexit = False
        self.queue.copies.append(Copy(staged, memory))
        return torch.from_numpy(view).view(staged.dtype).view(staged.shape)

    def _free(self, memory: Memory) -> None:
        self.freed += 1
        if memory.ctypes.data not in self._in_use:
            memory[:] = POISON


class WithoutTheWait(LateCopies):
    """The loop uses a batch whose copy is under way."""

    def arrive(self, event: Event) -> None:
        del event  # what is left out


class WithoutTheUse(LateCopies):
    """The allocator is not told that the stream of the loop uses the memory."""

    def use(self, copied: Sequence[torch.Tensor]) -> None:
        del copied  # what is left out


class WithoutTheRecord(LateCopies):
    """The event stands before the copies."""

    def record(self) -> Event:
        return LateEvent(self.queue, [])


class WithOneLeftOut(LateCopies):
    """The last tensor of each batch takes a way of its own, so that nothing waits for it."""

    def wait(self, event: Event, copied: Sequence[torch.Tensor]) -> None:
        assert isinstance(event, LateEvent)
        super().wait(LateEvent(self.queue, event.before[:-1]), copied[:-1])


class WithoutTheHost(LateCopies):
    """The host does not wait before it fills staging memory again."""

    def record(self) -> Event:
        return _Unheard(self.queue, [*self.queue.copies])


class _Unheard(LateEvent):
    """An event at which the stream of the loop waits, and the host does not."""

    def synchronize(self) -> None:
        """Return at once."""


BROKEN: list[Callable[[], Copies]] = [
    WithoutTheWait,
    WithoutTheUse,
    WithoutTheRecord,
    WithOneLeftOut,
    WithoutTheHost,
]


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Overwrite the memory of a contiguous tensor."""
    tensor.view(-1).view(torch.uint8).fill_(POISON)
    return tensor
