"""Which rows the windows of a batch hold: those at consecutive slots, stretches of rows, or rows in any order.

Each kind says for every slot of a window which row it holds, or that it is empty. All spans over the same slots share
that. Arrays are numpy's where the kernel gathers, and tensors, on the device of the columns, where torch does.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.native.guide import guide
from tensorstash.native.kernel import Fragments, Guide

_NEVER = -(1 << 62)  # before every slot


def as_tensors(fragments: Fragments, device: torch.device) -> Fragments:
    """Fragments as tensors, behind one without rows that begins before all slots."""
    every = np.append(_NEVER, fragments.first), np.append(0, fragments.row), np.append(0, fragments.rows)
    return Fragments(*(torch.from_numpy(array).to(device) for array in every))


def _fragment_at(fragments: Fragments, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Each slot, any shape, counted from the start of the last fragment that begins by then, and its rows and row."""
    k = torch.searchsorted(fragments.first[1:], slots, right=True).view(-1)  # `index_select` is faster than an index
    first, row, rows = (array.index_select(0, k).view(slots.shape) for array in fragments)
    return slots - first, rows, row


class InSlots(NamedTuple):
    """Windows at consecutive slots of their memory."""

    anchors: Any  # (windows,) the slot of each anchor
    skips: Any  # (windows, draws) the slots that each draw leaves out at the start of its spans; None: none
    variates: Any = None  # (windows,) which column of the pack in its memory each one holds; None: all columns


class Stretches(NamedTuple):
    """Consecutive rows of each window at the end of its slots, behind empty ones: the last `rows` before row `stop`."""

    stop: Any  # (windows,) as all
    rows: Any
    origin: Any  # from which distances are counted


class Picked(NamedTuple):
    """Rows of each window in any order."""

    rows: Any  # (windows, time) -1 for an empty slot; all spans have these slots
    origin: Any  # (windows,) from which distances are counted


Rows = InSlots | Stretches | Picked


def count_of(rows: Rows) -> int:
    """How many windows there are."""
    return len(rows[0])


def whole(
    rows: InSlots | Stretches, fragments: Fragments | None, history: int, horizon: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The row of each anchor, and which windows have rows that follow each other in all their slots; `None`: all do.

    The rows of other windows mean nothing. Without `fragments`, slots are rows. The anchor of a stretch is its end.
    """
    if isinstance(rows, Stretches):
        return rows.stop, rows.rows == history
    if fragments is None:
        return rows.anchors, None
    within, count, row = _fragment_at(fragments, rows.anchors - history)
    inside = within + (history + horizon) <= count
    if rows.skips is not None:
        inside &= (rows.skips == 0).all(1)
    return within.add_(row).add_(history), inside


def matrix(rows: Rows, fragments: Fragments | None, slots: torch.Tensor, draw: int) -> torch.Tensor:
    """The row of each slot, -1 for an empty one: `(windows, time)`.

    Args:
        rows: of the windows.
        fragments: of the memory; `None`: slots are rows.
        slots: relative to the anchor, `(time,)`.
        draw: the number of the draw by which the first slots are left out, or -1.
    """
    if isinstance(rows, Picked):
        return rows.rows.clone()
    if isinstance(rows, Stretches):
        return torch.where(slots >= -rows.rows[:, None], rows.stop[:, None] + slots, -1)
    at = rows.anchors[:, None] + slots
    if fragments is None:
        return at
    within, count, row = _fragment_at(fragments, at)
    inside = within < count
    if draw >= 0 and rows.skips is not None:
        inside &= slots - slots[0] >= rows.skips[:, draw, None]
    return torch.where(inside, within.add_(row), -1)


def as_fragments(stretches: Stretches, length: int) -> tuple[Fragments, Guide, Int64s]:
    """For the kernel, stretches as windows in slots: a fragment of each, their guide, and the slots of the anchors.

    Window i has the slots `i * length` up to `(i + 1) * length`.
    """
    windows = _windows(len(stretches.stop), length)
    anchors = np.ascontiguousarray(windows.ends)
    return Fragments(anchors - stretches.rows, stretches.stop - stretches.rows, stretches.rows), windows, anchors


@lru_cache(maxsize=16)
def _windows(count: int, length: int) -> Guide:
    return guide(np.arange(length, (count + 1) * length, length)[:, None])
