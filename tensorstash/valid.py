"""Which windows are taken: without missing values (`require`), anchored where a mask is true (`where`)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.arrays import Int64s
from tensorstash.intervals import Intervals, drop, keep, spread, union
from tensorstash.runs import true_rows
from tensorstash.slots import Slots, empty_slots, slots_at
from tensorstash.spans import Span
from tensorstash.stash import Stash

_BLOCK = 1 << 20  # rows scanned for missing values at a time

Where = str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor


def complete(stash: Stash, slots: Slots, judged: list[Span], history: int, whole: Intervals) -> Intervals:
    """Without the windows in which one of the spans has a missing value."""
    bad_low, bad_high, empty = [], [], empty_slots(slots)
    for span in judged:
        low, high = _missing(stash, span.column)
        low, high = slots_at(slots, low), slots_at(slots, high - 1) + 1
        low, high = union(np.concatenate([low, empty[0]]), np.concatenate([high, empty[1]]))
        # a window that starts at slot s has slot j of the span at slot s + history + begin + j * step
        shift = span.begin + history
        low, high = spread(low - shift, high - shift, len(span), span.step)
        bad_low.append(low)
        bad_high.append(high)
    return drop(whole, *union(np.concatenate(bad_low), np.concatenate(bad_high))) if bad_low else whole


def _missing(stash: Stash, name: str) -> tuple[Int64s, Int64s]:
    """The ranges of rows in which a column has a missing value."""
    column, found = stash[name], []
    if stash.about(name)["missing"]:
        for begin in range(0, stash.rows, _BLOCK):
            block = column[begin : begin + _BLOCK]
            holes = torch.isnan(block) if block.dtype.is_floating_point else block < 0
            found.append(true_rows(holes.flatten(1).any(1).numpy() if holes.ndim > 1 else holes.numpy(), begin))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])


def anchored(stash: Stash, slots: Slots, where: Where, shift: int, whole: Intervals) -> Intervals:
    """The windows whose row `shift` is a true one; an empty slot is not."""
    low, high = true_rows(_mask(stash, where), 0)
    kept = keep(whole, slots_at(slots, low) - shift, slots_at(slots, high - 1) + 1 - shift)
    return drop(kept, *(edges - shift for edges in empty_slots(slots)))


def _mask(stash: Stash, where: Where) -> NDArray[np.bool_]:
    """The `(rows,)` booleans that `where=` names or gives."""
    mask = np.asarray(stash[where] if isinstance(where, str) else where)
    if mask.dtype != bool or mask.shape != (stash.rows,):
        raise ValueError(
            f"where= is a boolean column or ({stash.rows},) booleans, one per row; got {mask.shape} of {mask.dtype}."
        )
    return mask
