"""Where windows go in a packed batch, in integers, and their slots moved there; by the kernel, or by numpy alike."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int32s, Int64s, as_integers
from tensorstash.native import kernel, library


@dataclass(frozen=True)
class Packing:
    """The windows of a batch without their empty slots, in `rows` rows of `length` slots."""

    observed: Bools | None  # (windows, slots) which slots have a row; None: all
    sizes: Int64s  # (windows,) how many have one
    slots: int  # of a window
    row: Int64s  # (windows,)
    begin: Int64s  # (windows,) in its row
    rows: int
    length: int

    @cached_property
    def used(self) -> Int64s:
        """`(rows,)` how many slots of each row hold one of a window."""
        return np.bincount(self.row[self.sizes > 0], self.sizes[self.sizes > 0], self.rows).astype(np.int64)

    @cached_property
    def described(self) -> Any:
        """The packing for the kernel, which points to the arrays above."""
        return kernel.packed(self.observed, self.sizes, self.place, self.used, self.slots, self.length)

    @property
    def room(self) -> int:
        """Slots of all rows."""
        return self.rows * self.length

    @cached_property
    def place(self) -> Int64s:
        """`(windows,)` where each window begins among the slots of all rows."""
        return self.row * self.length + self.begin


def in_rows(observed: Bools | None, shape: tuple[int, int], length: int, multiple: int) -> Packing:
    """As few rows as best fit needs over the sizes in descending order; equal ones in the order of the batch."""
    sizes = _sizes(observed, shape)
    row, begin = np.zeros_like(sizes), np.zeros_like(sizes)
    order = np.argsort(-sizes, kind="stable")
    order = order[: np.count_nonzero(sizes)]  # a window without a row needs no place
    row[order], begin[order], rows = best_fit(sizes[order], length)
    return Packing(observed, sizes, shape[1], row, begin, -(-rows // multiple) * multiple, length)


def in_a_row(observed: Bools | None, shape: tuple[int, int], multiple: int) -> Packing:
    """One window after the other, in the order of the batch."""
    sizes = _sizes(observed, shape)
    ends = np.cumsum(sizes)
    length = -(-int(ends[-1] if len(ends) else 0) // multiple) * multiple
    return Packing(observed, sizes, shape[1], np.zeros_like(sizes), ends - sizes, 1, length)


def _sizes(observed: Bools | None, shape: tuple[int, int]) -> Int64s:
    if observed is None:
        return np.full(shape[0], shape[1], np.int64)
    return observed.sum(1, dtype=np.int64) if library.LIBRARY is None else kernel.count(observed)


def best_fit(sizes: Int64s, length: int) -> tuple[Int64s, Int64s, int]:
    """The row of each window and its begin there, and the number of rows.

    Each window goes, in the order of `sizes`, into the row with the least room that it fits into, of equal ones into
    the one that was filled last. Rows are kept by their room, so none is looked at twice.
    """
    if library.LIBRARY is not None:
        return kernel.best_fit(sizes, length)
    row, begin, count = np.empty_like(sizes), np.empty_like(sizes), 0
    rows_with: dict[int, list[int]] = {}  # by room
    rooms = 0  # bit r: some row has the room r
    for window, size in enumerate(sizes.tolist()):
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            k = rows_with[room].pop()
            rooms ^= (not rows_with[room]) << room
        else:
            room, k, count = length, count, count + 1
        row[window], begin[window] = k, length - room
        if room > size:
            rows_with.setdefault(room - size, []).append(k)
            rooms |= 1 << room - size
    return row, begin, count


def move(packing: Packing, values: torch.Tensor, target: torch.Tensor) -> None:
    """Write the slots with a row of `values`, `(windows, slots, ...)`, into `target`, `(rows, length, ...)`."""
    if not packing.room:
        return
    place, source, rows = packing.place, as_integers(values.contiguous()), as_integers(target).view(packing.room, -1)
    if library.LIBRARY is None:
        of_slot, slots = _moves(packing, place)
        rows.zero_()
        rows[torch.from_numpy(slots)] = source.view(len(place) * packing.slots, -1)[torch.from_numpy(of_slot)]
    else:
        kernel.pack(packing.described, source.data_ptr(), rows.data_ptr(), rows[:1].nbytes)


def mark(packing: Packing, segments: Int32s, positions: Int32s) -> None:
    """Write two numbers for each slot of all rows, `(rows * length,)` each.

    Args:
        packing: of windows.
        segments: 0 for a slot that is empty, else the number of the window in its row: 1, 2, ...
        positions: how many slots after the first one of its window with a row it lies.
    """
    if not packing.room:
        return
    segment = np.zeros(len(packing.row), np.int32)
    order = np.lexsort((packing.begin, packing.row))
    order = order[packing.sizes[order] > 0]
    first = np.searchsorted(packing.row[order], packing.row[order])
    segment[order] = np.arange(len(order)) - first + 1
    if library.LIBRARY is None:
        _mark(packing, segment, segments, positions)
    else:
        kernel.mark(packing.described, segment, segments, positions)


def _mark(packing: Packing, segment: Int32s, segments: Int32s, positions: Int32s) -> None:
    of_slot, slots = _moves(packing, packing.place)
    window, slot = np.divmod(of_slot, max(1, packing.slots))
    first = np.zeros(len(segment), np.int64) if packing.observed is None else packing.observed.argmax(1)
    segments[:], positions[:] = 0, 0
    segments[slots] = segment[window]
    positions[slots] = slot - first[window]


def _moves(packing: Packing, place: Int64s) -> tuple[Int64s, Int64s]:
    """The slots with a row among those of all windows, and the slots of the rows that they go to."""
    count = len(place) * packing.slots
    of_slot = np.arange(count) if packing.observed is None else np.flatnonzero(packing.observed)
    first = np.cumsum(packing.sizes) - packing.sizes
    return of_slot, np.arange(len(of_slot)) + np.repeat(place - first, packing.sizes)
