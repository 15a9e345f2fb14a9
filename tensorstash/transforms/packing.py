"""The places of windows in a packed batch, and moving their slots there, by the kernel or, equally, by numpy."""

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

    observed: Bools | None  # (windows, slots): which slots have a row; None: all slots
    slots: int  # slots of each window
    sizes: Int64s  # (windows,): the number of slots with a row
    place: Int64s  # (windows,): the first slot of each window, counted through the slots of all rows
    used: Int64s  # (rows,): the number of used slots of each row
    length: int

    @property
    def room(self) -> int:
        """The number of slots of all rows."""
        return len(self.used) * self.length

    @cached_property
    def described(self) -> Any:
        """The packing for the kernel, with pointers to the arrays above."""
        return kernel.packed(self.observed, self.sizes, self.place, self.used, self.slots, self.length)


def pack(observed: Bools | None, shape: tuple[int, int], length: int | None, multiple: int) -> Packing:
    """Place windows in rows of a length by best fit, the longest first; without a length one after the other.

    The number of rows, without a length that of slots, is rounded up to a multiple.
    """
    count, slots = shape
    if observed is None:
        sizes = np.full(count, slots, np.int64)
    else:
        sizes = observed.sum(1, dtype=np.int64) if library.LIBRARY is None else kernel.count(observed)
    if length is None:
        total = int(sizes.sum())
        place = np.cumsum(sizes) - sizes
        return Packing(observed, slots, sizes, place, np.array([total]), -(-total // multiple) * multiple)
    row, start, rows = best_fit(sizes, length)
    rows = -(-rows // multiple) * multiple
    used = np.bincount(row, sizes, rows)[:rows].astype(np.int64)
    return Packing(observed, slots, sizes, row * length + start, used, length)


def best_fit(sizes: Int64s, length: int) -> tuple[Int64s, Int64s, int]:
    """The row of each window, its first slot there, and the number of rows.

    The longest window is placed first. Each goes into the row with the least sufficient room, and of rows with equal
    room into the one that was filled last. Empty windows take no room: they get row 0 and slot 0.
    """
    if library.LIBRARY is not None:
        return kernel.best_fit(sizes, length)
    row, start, rows = np.zeros_like(sizes), np.zeros_like(sizes), 0
    open_rows: list[tuple[int, int, int]] = []  # ascending: room, minus the time when last filled, number
    for time, window in enumerate(np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)].tolist()):
        size = int(sizes[window])
        at = bisect_left(open_rows, (size,))
        if at < len(open_rows):
            room, _, k = open_rows.pop(at)
        else:
            room, k, rows = length, rows, rows + 1
        row[window], start[window] = k, length - room
        if room > size:
            insort(open_rows, (room - size, -time, k))
    return row, start, rows


def move(packing: Packing, values: torch.Tensor, target: torch.Tensor) -> None:
    """Copy the slots of `values`, `(windows, slots, ...)`, that have a row into `target`, `(rows, length, ...)`."""
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
    """Write the segment and the position of each slot of all rows, `(rows * length,)` each.

    Args:
        packing: the places of the windows.
        segments: gets 0 for an empty slot, else the number of its window in the row: 1, 2, ...
        positions: gets the number of slots since the first slot of its window that has a row.
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
    """The place of each slot that has a row, in the order of the windows."""
    first = np.cumsum(packing.sizes) - packing.sizes
    return np.arange(packing.sizes.sum()) + np.repeat(packing.place - first, packing.sizes)
