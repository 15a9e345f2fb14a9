"""Windows with empty slots, gathered row by row; empty slots get a fill or a computed value."""

from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int64s, as_integers
from tensorstash.gather.memory import Compute, Filling
from tensorstash.gather.span import Span
from tensorstash.native.guide import find


@dataclass(frozen=True, slots=True)
class Patch:
    """How windows with empty slots are written into the buffer of a `SpanGroup`, row by row."""

    items: torch.Tensor  # (n, items of a row) all rows of the block, as integers
    first: Int64s  # (spans,) where the column of each span begins in it
    ranges: tuple[slice, ...]  # of each span, among the slots of a window
    draws: tuple[int, ...]  # of each span, the number of its draw or -1
    fills: torch.Tensor  # (spans, 1, 1, 1)
    computed: tuple[Compute | None, ...]  # of each span


def anchor_rows(filling: Filling, anchors: Int64s) -> tuple[Int64s, Bools]:
    """The row of each anchor slot and whether its window lies in one fragment; if not, any row at which one fits."""
    starts, fragments = anchors - filling.history, filling.fragments
    k = find(fragments.guide, starts)
    after = starts - fragments.first[k]
    whole = (after >= 0) & (after + filling.history + filling.horizon <= fragments.rows[k])
    return np.where(whole, fragments.row[k] + after, 0) + filling.history, whole


def rows_of(filling: Filling, anchors: Int64s) -> Int64s:
    """The row of every slot of windows with anchors at these slots, -1 for an empty one: `(windows, length)`."""
    starts, fragments, length = anchors - filling.history, filling.fragments, filling.history + filling.horizon
    table = np.full(len(starts) * length, -1)
    low = find(fragments.guide, starts)
    count = find(fragments.guide, starts + (length - 1)) - low + 1
    window = np.repeat(np.arange(len(starts)), count)
    k = np.repeat(low, count) + _counted(count)
    offset = fragments.first[k] - starts[window]
    start, stop = np.clip(offset, 0, length), np.clip(offset + fragments.rows[k], 0, length)
    step = _counted(stop - start)
    rows = np.repeat(fragments.row[k] + start - offset, stop - start) + step
    table[np.repeat(window * length + start, stop - start) + step] = rows
    return table.reshape(-1, length)


def slots_of(filling: Filling, span: Span) -> slice:
    """The slots of a span among those of its window."""
    return slice(filling.history + span.start, filling.history + span.stop, span.step)


def taken_rows(rows: Int64s, slots: slice, skips: Int64s | None, draw: int) -> Int64s:
    """The rows of a span, -1 for an empty slot: `(windows, time)`.

    Args:
        rows: of all slots of the windows.
        slots: those of the span.
        skips: `(draws, windows)` the slots that each draw leaves out at the start; or nothing is left out.
        draw: the number of the span's draw, or -1.
    """
    taken = rows[:, slots]
    if skips is None or draw < 0:
        return taken
    return np.where(np.arange(taken.shape[1]) * slots.step < skips[draw][:, None], -1, taken)


def fill_in(patch: Patch, buffer: torch.Tensor, rows: Int64s, which: torch.Tensor, skips: Int64s | None) -> None:
    """Write the windows `which`, which have the `rows`, into a buffer `(spans * batch, ...)`."""
    taken = np.stack([taken_rows(rows, slots, skips, draw) for slots, draw in zip(patch.ranges, patch.draws)])
    empty = torch.from_numpy(taken < 0)[..., None]
    index = np.maximum(taken, 0, out=taken)
    index += patch.first[:, None, None]
    values = patch.items.index_select(0, torch.from_numpy(index.reshape(-1))).view(*taken.shape, -1)
    filled = torch.where(empty, patch.fills, values)
    target = as_integers(buffer).view(len(taken), len(buffer) // len(taken), -1)
    target.index_copy_(1, which, filled.view(*taken.shape[:2], -1))


def compute_in(  # noqa: PLR0917  as `fill_in`, and where windows begin
    patch: Patch, buffer: torch.Tensor, rows: Int64s, starts: Int64s, which: torch.Tensor, skips: Int64s | None
) -> None:
    """Write computed values into the empty slots of the windows `which`, which begin at the slots `starts`."""
    target = as_integers(buffer).view(len(patch.computed), len(buffer) // len(patch.computed), -1)
    for span, (slots, draw, compute) in enumerate(zip(patch.ranges, patch.draws, patch.computed)):
        if compute is not None:
            window, at = np.nonzero(taken_rows(rows, slots, skips, draw) < 0)
            values = compute(starts[window] + range(*slots.indices(rows.shape[1]))[0] + at * (slots.step or 1))
            of_span = target[span].view(target.shape[1], -1, values.shape[1])
            of_span[which[torch.from_numpy(window)], torch.from_numpy(at)] = values


def _counted(counts: Int64s) -> Int64s:
    """`0, 1, ..., count - 1` for each count, in a row."""
    stops = np.cumsum(counts, dtype=np.int64)
    return np.arange(int(stops[-1]) if len(stops) else 0) - np.repeat(stops - counts, counts)
