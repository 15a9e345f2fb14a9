"""Which windows are taken: without missing values (`require`), anchored where a mask is true (`where`)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.gather.span import Span
from tensorstash.stash.missing import missing_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals, cut_ranges, drop, keep, spread, union
from tensorstash.windows.layout import Layout
from tensorstash.windows.runs import true_rows
from tensorstash.windows.slots import empty_slots, run_rows, slots_at

_BLOCK = 1 << 20  # rows scanned for missing values at a time

Where = str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor


def complete(layout: Layout, judged: list[Span], whole: Intervals) -> Intervals:
    """Without the windows in which one of the spans has a missing value; if none is left, a `DataError`.

    An empty slot counts as missing, except behind a run, where nothing can be known yet.
    """
    if not judged:
        return whole
    bad_low, bad_high, empty = [], [], empty_slots(layout.slots)
    for span in judged:
        low, high = _slot_ranges(layout, *missing_ranges(layout.stash, span.column))
        if len(empty[0]):
            low, high = union(np.concatenate([low, empty[0]]), np.concatenate([high, empty[1]]))
        # a window that starts at slot s has slot j of the span at slot s + history + begin + j * step
        shift = span.begin + layout.history
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


def missing_ranges(stash: Stash, name: str) -> tuple[Int64s, Int64s]:
    """The ranges `[low, high)` of rows in which a column has a missing value."""
    if missing_rows(stash, name, slice(0, 0)) is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return _ranges(lambda rows: missing_rows(stash, name, rows), stash.rows)


def _slot_ranges(layout: Layout, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Ranges of rows as ranges of slots, which leave out the slots between two runs."""
    slots = layout.slots
    if slots.tail or slots.lead:
        low, high = cut_ranges(run_rows(slots, layout.stash.rows)[0], low, high)
    return slots_at(slots, low), slots_at(slots, high - 1) + 1


def _ranges(true: Callable[[slice], NDArray[np.bool_] | None], rows: int) -> tuple[Int64s, Int64s]:
    """The ranges of rows that are true, found in blocks."""
    blocks = ((true(slice(begin, begin + _BLOCK)), begin) for begin in range(0, rows, _BLOCK))
    found = [true_rows(block, begin) for block, begin in blocks if block is not None]
    none = np.empty(0, np.int64)
    return union(
        np.concatenate([none, *(low for low, _ in found)]), np.concatenate([none, *(high for _, high in found)])
    )


def anchored(layout: Layout, where: Where, whole: Intervals) -> Intervals:
    """The windows whose anchor (without a horizon: last slot) is a true row; if there is none, a `DataError`."""
    mask, shift = _mask(layout.stash, where), layout.history + layout.label
    low, high = _slot_ranges(layout, *_ranges(mask.__getitem__, layout.stash.rows))
    kept = keep(whole, low - shift, high - shift)
    kept = drop(kept, *(edges - shift for edges in empty_slots(layout.slots)))
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
