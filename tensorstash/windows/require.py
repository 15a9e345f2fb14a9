"""Which windows are taken: without missing values (`require`), anchored where a mask is true (`where`)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals, drop, keep, spread, union
from tensorstash.windows.runs import true_rows
from tensorstash.windows.slots import Slots, empty_slots, slots_at

_BLOCK = 1 << 20  # rows scanned for missing values at a time

Where = str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor


def complete(stash: Stash, slots: Slots, judged: list[Span], history: int, whole: Intervals) -> Intervals:
    """Without the windows in which one of the spans has a missing value; if none is left, a `DataError`."""
    if not judged:
        return whole
    bad_low, bad_high, empty = [], [], empty_slots(slots)
    for span in judged:
        low, high = _missing(stash, span.column)
        low, high = slots_at(slots, low), slots_at(slots, high - 1) + 1
        if len(empty[0]):
            low, high = union(np.concatenate([low, empty[0]]), np.concatenate([high, empty[1]]))
        # a window that starts at slot s has slot j of the span at slot s + history + begin + j * step
        shift = span.begin + history
        low, high = spread(low - shift, high - shift, len(span), span.step)
        bad_low.append(low)
        bad_high.append(high)
    bad = bad_low[0], bad_high[0]
    if len(judged) > 1:
        bad = union(np.concatenate(bad_low), np.concatenate(bad_high))
    kept = drop(whole, *bad)
    if not len(kept):
        raise DataError(
            f"require= keeps the windows without a missing value; each of the {len(whole):,} windows has one in "
            f"{', '.join(repr(span.name) for span in judged)}. Shorten the window, or load with fill=."
        )
    return kept


def _missing(stash: Stash, name: str) -> tuple[Int64s, Int64s]:
    """The ranges of rows in which a column has a missing value."""
    if not stash.about(name).missing:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    column = stash[name]

    def holes(rows: slice) -> NDArray[np.bool_]:
        block = column[rows]
        found = torch.isnan(block) if block.dtype.is_floating_point else block < 0
        return (found.flatten(1).any(1) if found.ndim > 1 else found).numpy()

    return _ranges(holes, stash.rows)


def _ranges(true: Callable[[slice], NDArray[np.bool_]], rows: int) -> tuple[Int64s, Int64s]:
    """The ranges of rows that are true, found in blocks."""
    found = [true_rows(true(slice(begin, begin + _BLOCK)), begin) for begin in range(0, rows, _BLOCK)]
    none = np.empty(0, np.int64)
    return union(
        np.concatenate([none, *(low for low, _ in found)]), np.concatenate([none, *(high for _, high in found)])
    )


def anchored(stash: Stash, slots: Slots, where: Where, shift: int, whole: Intervals) -> Intervals:
    """The windows whose slot `shift` is a true row, which an empty slot is not; if there is none, a `DataError`."""
    mask = _mask(stash, where)
    low, high = _ranges(mask.__getitem__, stash.rows)
    kept = keep(whole, slots_at(slots, low) - shift, slots_at(slots, high - 1) + 1 - shift)
    kept = drop(kept, *(edges - shift for edges in empty_slots(slots)))
    if not len(kept):
        raise DataError(
            "where= keeps the windows whose anchor is at a true row; none of the "
            f"{len(whole):,} windows has its anchor at one. See windows.anchors without where=."
        )
    return kept


def _mask(stash: Stash, where: Where) -> NDArray[np.bool_]:
    """The `(rows,)` booleans that `where=` names or gives."""
    mask = np.asarray(stash[where] if isinstance(where, str) else where)
    if mask.dtype != bool or mask.shape != (stash.rows,):
        raise ValueError(
            f"where= is a boolean column or ({stash.rows},) booleans, one per row; got {mask.shape} of {mask.dtype}."
        )
    return mask
