"""Windows with empty slots: gathered row by row, with a fill or a computed value in slots without a row."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int64s, as_integers
from tensorstash.errors import SchemaError
from tensorstash.gather.span import Span
from tensorstash.native.guide import Guide, find
from tensorstash.stash.stash import Stash

# from the numbers of slots, (n,), to the values of a column in them, (n, items of a row) integers of its width
Compute = Callable[[Int64s], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Fragments:
    """Stretches of rows without an empty slot between them, and the slots at which they begin."""

    first: Int64s  # (fragments,) the slot of the first row of each
    row: Int64s  # (fragments,) that row
    rows: Int64s  # (fragments,)
    guide: Guide  # fragment k from its first slot up to the next fragment's, the first from slot 0


@dataclass(frozen=True, slots=True)
class FillPlan:
    """How windows of `history + horizon` slots, some of them empty, are mapped to rows and filled."""

    fragments: Fragments
    history: int
    horizon: int
    spans: tuple[Span, ...]
    fills: Mapping[str, torch.Tensor]  # of the spans' columns, () integers of their width
    computed: Mapping[str, Compute]  # columns whose values in empty slots are computed


@dataclass(frozen=True, slots=True)
class GroupFill:
    """How the windows of a `SpanGroup` that have empty slots are written into its buffer, row by row."""

    items: torch.Tensor  # (n, items of a row) all rows of the block, as integers
    first: Int64s  # (spans,) where the column of each span begins in it
    ranges: tuple[slice, ...]  # of each span, among the slots of a window
    fills: torch.Tensor  # (spans, 1, 1, 1)
    computed: tuple[Compute | None, ...]  # of each span


def fills(stash: Stash, spans: tuple[Span, ...], computed: Collection[str]) -> dict[str, torch.Tensor]:
    """The value of empty slots by column, 0 where it is computed later; a column without one is a `SchemaError`."""
    filled = {span.column: _fill(stash, span.column) for span in spans if span.column not in computed}
    return filled | {name: as_integers(stash[name].new_zeros(1))[0] for name in computed}


def _fill(stash: Stash, name: str) -> torch.Tensor:
    """The value of the empty slots of a column: its `empty=`, else its `fill=`, else NaN or code -1."""
    about, dtype = stash.about(name), stash[name].dtype
    fill: Any = about.fill if about.empty is None else about.empty
    if about.kind == "category":
        fill = -1 if fill is None else stash.vocabulary(name).index(fill)
    elif about.kind == "hashed":
        fill = -1
    elif fill is None and dtype.is_floating_point:
        fill = float("nan")
    if fill is None:
        raise SchemaError(
            f"An empty slot needs a value; column {name!r} is {dtype}, which has none for missing. Load it with "
            f"ts.column({name!r}, empty=...)."
        )
    return as_integers(torch.tensor([fill], dtype=dtype))[0]


def anchor_rows(needed: FillPlan, anchors: Int64s) -> tuple[Int64s, Bools]:
    """The row of each anchor slot and whether its window lies in one fragment; if not, any row at which one fits."""
    starts, fragments = anchors - needed.history, needed.fragments
    k = find(fragments.guide, starts)
    after = starts - fragments.first[k]
    whole = (after >= 0) & (after + needed.history + needed.horizon <= fragments.rows[k])
    return np.where(whole, fragments.row[k] + after, 0) + needed.history, whole


def rows_of(needed: FillPlan, places: Int64s) -> Int64s:
    """The row of every slot of windows with anchors at `places`, -1 for an empty one: `(windows, length)`."""
    return _rows(needed, places - needed.history)


def observed(needed: FillPlan, rows: Int64s, which: torch.Tensor, count: int) -> dict[str, torch.Tensor]:
    """`<span>.observed` for a batch of `count`, in which the windows `which` have the `rows`.

    Spans over the same slots share one tensor.
    """
    seen: dict[tuple[int, int, int], torch.Tensor] = {}
    for span in needed.spans:
        key = (span.begin, span.end, span.step)
        if key not in seen:
            seen[key] = torch.ones(count, len(span), dtype=torch.bool)
            own = rows[:, needed.history + span.begin : needed.history + span.end : span.step]
            seen[key].index_copy_(0, which, torch.from_numpy(own >= 0))
    return {f"{span.name}.observed": seen[span.begin, span.end, span.step] for span in needed.spans}


def fill_in(patch: GroupFill, buffer: torch.Tensor, rows: Int64s, which: torch.Tensor) -> None:
    """Write the windows `which`, which have the `rows`, into a buffer `(spans * batch, ...)`."""
    own = np.stack([rows[:, slots] for slots in patch.ranges])
    empty = torch.from_numpy(own < 0)[..., None]
    index = np.maximum(own, 0, out=own)
    index += patch.first[:, None, None]
    values = patch.items.index_select(0, torch.from_numpy(index.reshape(-1))).view(*own.shape, -1)
    filled = torch.where(empty, patch.fills, values)
    target = as_integers(buffer).view(len(own), len(buffer) // len(own), -1)
    target.index_copy_(1, which, filled.view(*own.shape[:2], -1))


def compute_in(filled: GroupFill, buffer: torch.Tensor, rows: Int64s, starts: Int64s, which: torch.Tensor) -> None:
    """Write computed values into the empty slots of the windows `which`, which begin at the slots `starts`."""
    target = as_integers(buffer).view(len(filled.computed), len(buffer) // len(filled.computed), -1)
    for span, (slots, compute) in enumerate(zip(filled.ranges, filled.computed)):
        if compute is not None:
            window, at = np.nonzero(rows[:, slots] < 0)
            values = compute(starts[window] + range(*slots.indices(rows.shape[1]))[0] + at * (slots.step or 1))
            own = target[span].view(target.shape[1], -1, values.shape[1])
            own[which[torch.from_numpy(window)], torch.from_numpy(at)] = values


def _rows(needed: FillPlan, starts: Int64s) -> Int64s:
    """The row of every slot of windows that start at the slots `starts`, -1 for an empty one: `(windows, length)`."""
    fragments, length = needed.fragments, needed.history + needed.horizon
    table = np.full(len(starts) * length, -1)
    low = find(fragments.guide, starts)
    count = find(fragments.guide, starts + (length - 1)) - low + 1
    window = np.repeat(np.arange(len(starts)), count)
    k = np.repeat(low, count) + _counted(count)
    offset = fragments.first[k] - starts[window]
    begin, end = np.clip(offset, 0, length), np.clip(offset + fragments.rows[k], 0, length)
    step = _counted(end - begin)
    rows = np.repeat(fragments.row[k] + begin - offset, end - begin) + step
    table[np.repeat(window * length + begin, end - begin) + step] = rows
    return table.reshape(-1, length)


def _counted(counts: Sequence[int] | Int64s) -> Int64s:
    """`0, 1, ..., count - 1` for each count, in a row."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
