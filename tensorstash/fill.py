"""Windows with empty slots: their values one row at a time, and a fill where there is no row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensorstash.arrays import Bools, Int64s
from tensorstash.errors import SchemaError
from tensorstash.intervals import Guide, find
from tensorstash.slots import Slots
from tensorstash.spans import Span
from tensorstash.stash import Stash

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Filling:
    """What is needed to fill windows, which have `history + horizon` slots."""

    slots: Slots
    guide: Guide  # fragment k from its first slot up to the next fragment's, the first from slot 0
    history: int
    horizon: int
    spans: tuple[Span, ...]
    columns: Mapping[str, torch.Tensor]  # the spans' columns, as integers of their width, for any dtype
    fills: Mapping[str, torch.Tensor]  # () likewise


def fills(stash: Stash, spans: tuple[Span, ...]) -> dict[str, torch.Tensor]:
    """What stands in empty slots, by column; one without a value for them is a `SchemaError`."""
    return {name: _fill(stash, name) for name in dict.fromkeys(span.column for span in spans)}


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of its width."""
    return tensor.view(_INTEGERS[tensor.itemsize])


def _fill(stash: Stash, name: str) -> torch.Tensor:
    """What stands in the empty slots of a column: its `fill=`, else NaN or code -1."""
    about, dtype = stash.about(name), stash[name].dtype
    fill: Any = about["fill"]
    if about["kind"] == "category":
        fill = -1 if fill is None else stash.vocabulary(name).index(fill)
    elif fill is None and dtype.is_floating_point:
        fill = float("nan")
    if fill is None:
        raise SchemaError(
            f"An empty slot needs a value; column {name!r} is {dtype}, which has none for missing. Load it with "
            f"ts.column({name!r}, fill=...)."
        )
    return as_integers(torch.tensor([fill], dtype=dtype))[0]


def anchor_rows(needed: Filling, anchors: Int64s) -> tuple[Int64s, Bools]:
    """The row of each anchor slot, and whether the window lies in one fragment; elsewhere any row a window fits at."""
    starts, slots = anchors - needed.history, needed.slots
    k = find(needed.guide, starts)
    after = starts - slots.first[k]
    whole = (after >= 0) & (after + needed.history + needed.horizon <= slots.rows[k])
    return np.where(whole, slots.row[k] + after, 0) + needed.history, whole


def fill_in(
    needed: Filling, batch: Mapping[str, torch.Tensor], which: Int64s, anchors: Int64s
) -> dict[str, torch.Tensor]:
    """Write the windows `which` of a batch, whose anchor slots are `anchors`; `<span>.observed` of the whole batch.

    Spans of the same slots have one `observed` together.
    """
    at = torch.from_numpy(which)
    rows = torch.from_numpy(_rows(needed, anchors - needed.history)) if len(which) else None
    ranges: dict[tuple[int, int, int], list[Span]] = {}
    for span in needed.spans:
        ranges.setdefault((span.begin, span.end, span.step), []).append(span)
    seen: dict[str, torch.Tensor] = {}
    for (begin, end, step), spans in ranges.items():
        observed = torch.ones(batch[spans[0].name].shape[:2], dtype=torch.bool)
        seen |= {span.name: observed for span in spans}
        if rows is None:
            continue
        own = rows[:, needed.history + begin : needed.history + end : step]
        empty, known = own < 0, own.clamp(min=0).reshape(-1)
        observed.index_copy_(0, at, ~empty)
        for span in spans:
            column, fill = needed.columns[span.column], needed.fills[span.column]
            values = column.index_select(0, known).view(*own.shape, *column.shape[1:])
            values.masked_fill_(empty.view(*own.shape, *(1 for _ in column.shape[1:])), fill)
            as_integers(batch[span.name]).index_copy_(0, at, values)
    return {f"{span.name}.observed": seen[span.name] for span in needed.spans}


def _rows(needed: Filling, starts: Int64s) -> Int64s:
    """The row of every slot of windows that start at the slots `starts`, -1 for an empty one: `(windows, length)`."""
    slots, length = needed.slots, needed.history + needed.horizon
    table = np.full(len(starts) * length, -1)
    low = find(needed.guide, starts)
    count = find(needed.guide, starts + (length - 1)) - low + 1
    window = np.repeat(np.arange(len(starts)), count)
    k = np.repeat(low, count) + _counted(count)
    offset = slots.first[k] - starts[window]
    begin, end = np.clip(offset, 0, length), np.clip(offset + slots.rows[k], 0, length)
    step = _counted(end - begin)
    rows = np.repeat(slots.row[k] + begin - offset, end - begin) + step
    table[np.repeat(window * length + begin, end - begin) + step] = rows
    return table.reshape(-1, length)


def _counted(counts: Sequence[int] | Int64s) -> Int64s:
    """`0, 1, ..., count - 1` for each count, in a row."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
