"""Where windows go in a packed batch, in integers, and their slots moved there; by the kernel, or by numpy alike."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int32s, Int64s, as_integers
from tensorstash.native import kernel, library


@dataclass(frozen=True)
class Packing:
    """The windows of a batch without their empty slots, in rows of `length` slots."""

    observed: Bools | None  # (windows, slots) which slots have a row; None: all
    slots: int  # of a window
    sizes: Int64s  # (windows,) how many have a row
    place: Int64s  # (windows,) where each begins among the slots of all rows
    used: Int64s  # (rows,) how many slots of each row hold one of a window
    length: int

    @property
    def room(self) -> int:
        """Slots of all rows."""
        return len(self.used) * self.length

    @cached_property
    def described(self) -> Any:
        """The packing for the kernel, which points to the arrays above."""
        return kernel.packed(self.observed, self.sizes, self.place, self.used, self.slots, self.length)


def in_rows(observed: Bools | None, shape: tuple[int, int], length: int, multiple: int) -> Packing:
    """As few rows as best fit needs over the sizes in descending order; equal ones in the order of the batch."""
    sizes = _sizes(observed, shape)
    row, begin, rows = best_fit(sizes, length)
    rows = -(-rows // multiple) * multiple
    used = np.bincount(row, sizes, rows)[:rows].astype(np.int64)
    return Packing(observed, shape[1], sizes, row * length + begin, used, length)


def in_a_row(observed: Bools | None, shape: tuple[int, int], multiple: int) -> Packing:
    """One window after the other, in the order of the batch."""
    sizes = _sizes(observed, shape)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return Packing(observed, shape[1], sizes, ends - sizes, np.array([total]), -(-total // multiple) * multiple)


def _sizes(observed: Bools | None, shape: tuple[int, int]) -> Int64s:
    if observed is None:
        return np.full(shape[0], shape[1], np.int64)
    return observed.sum(1, dtype=np.int64) if library.LIBRARY is None else kernel.count(observed)


def best_fit(sizes: Int64s, length: int) -> tuple[Int64s, Int64s, int]:
    """The row of each window and its begin there, and the number of rows.

    The longest window is placed first. Each goes into the row with the least room that it fits into, of equal ones into
    the one that was filled last. Empty windows need no place: theirs is the first slot.
    """
    if library.LIBRARY is not None:
        return kernel.best_fit(sizes, length)
    row, begin, rows = np.zeros_like(sizes), np.zeros_like(sizes), 0
    open_rows: list[tuple[int, int, int]] = []  # ascending: the room of each, minus the time it was filled, its number
    for time, window in enumerate(np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)].tolist()):
        size = int(sizes[window])
        at = bisect_left(open_rows, (size,))
        if at < len(open_rows):
            room, _, k = open_rows.pop(at)
        else:
            room, k, rows = length, rows, rows + 1
        row[window], begin[window] = k, length - room
        if room > size:
            insort(open_rows, (room - size, -time, k))
    return row, begin, rows


def move(packing: Packing, values: torch.Tensor, target: torch.Tensor) -> None:
    """Write the slots with a row of `values`, `(windows, slots, ...)`, into `target`, `(rows, length, ...)`."""
    if not packing.room:
        return
    source = values.detach().contiguous()
    if library.LIBRARY is None:
        taken = source if packing.observed is None else source[torch.from_numpy(packing.observed)]
        slots, rows = _slots(packing), as_integers(target).view(packing.room, -1)
        rows.zero_()
        rows[torch.from_numpy(slots)] = as_integers(taken).reshape(len(slots), -1)
    else:
        kernel.pack(packing.described, source.data_ptr(), target.data_ptr(), target.nbytes // packing.room)


def mark(packing: Packing, segments: Int32s, positions: Int32s) -> None:
    """Write two numbers for each slot of all rows, `(rows * length,)` each.

    Args:
        packing: of windows.
        segments: 0 for a slot that is empty, else the number of the window in its row: 1, 2, ...
        positions: how many slots after the first one of its window with a row it lies.
    """
    if not packing.room:
        return
    if library.LIBRARY is not None:
        kernel.mark(packing.described, segments, positions)
        return
    order = np.argsort(packing.place, kind="stable")
    order = order[packing.sizes[order] > 0]
    row, number = packing.place[order] // packing.length, np.zeros(len(packing.place), np.int32)
    number[order] = np.arange(len(order)) - np.searchsorted(row, row) + 1
    slots = _slots(packing)
    observed = np.ones((len(number), packing.slots), bool) if packing.observed is None else packing.observed
    segments[:], positions[:] = 0, 0
    segments[slots] = np.repeat(number, packing.sizes)
    positions[slots] = np.nonzero(observed)[1] - np.repeat(observed.argmax(1), packing.sizes)


def _slots(packing: Packing) -> Int64s:
    """Where each slot with a row goes, in the order of the windows."""
    first = np.cumsum(packing.sizes) - packing.sizes
    return np.arange(packing.sizes.sum()) + np.repeat(packing.place - first, packing.sizes)
