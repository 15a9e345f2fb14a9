"""Batches by a few operations of torch that every device has: for columns on a device, and hosts without the kernel.

A batch whose windows are all whole is one `index_select` of a strided view for each span of consecutive slots, where
the columns are in the memory of the host: other devices may copy such a view first. Anything else is gathered by a
matrix of rows for each span. As measured, `index_select` along dimension 0 of a strided view is several times faster
than by such a matrix; along a later dimension it first copies the whole view; and of a view that steps over rows it is
slower. So spans that step over a few single items are cut out of all items between. Values viewed as integers are exact
for every dtype.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, as_integers
from tensorstash.common.forks import check_threads
from tensorstash.common.records import each_array, some_of
from tensorstash.gather.layout import Buffers, SpanGroup
from tensorstash.gather.memory import Memory, by_component
from tensorstash.gather.rows import InSlots, Picked, Rows, as_tensors, count_of, matrix, whole
from tensorstash.gather.span import Span, draws_of
from tensorstash.native import library
from tensorstash.native.kernel import Fragments

_MOST_STEPS = 4  # of single items: beyond it, and for packs, a matrix is faster than gathering all rows between
_BYTES_BETWEEN = 1 << 18  # of these rows, gathered at a time: they stay in the L2 cache until they are cut

# the number of each component, and the index of its windows, (n,) int64; None: of all windows
ByComponent = list[tuple[int, torch.Tensor | None]]


class TorchColumn(NamedTuple):
    """The column of a span in one memory."""

    items: torch.Tensor  # (rows, ...) integers of its width; of `ts.each` (rows * columns,)
    fill: torch.Tensor | None  # () what an empty slot holds; None: no slot can be empty
    strided: torch.Tensor | None  # (rows, items of a window); None: by a matrix of rows


class TorchMemory(NamedTuple):
    """One memory."""

    columns: tuple[TorchColumn, ...]  # of each span
    fragments: Fragments | None  # `None`: slots are rows, or windows are stretches of rows
    width: int  # items of a row; of a pack of `ts.each`, its columns


class TorchPlan(NamedTuple):
    """How the spans of one kind of rows, in the order of their buffers, are taken from one memory or several."""

    layout: tuple[SpanGroup, ...]
    slots: tuple[torch.Tensor, ...]  # of each `observed` tensor, or of slots that cannot be empty: (time,) int64
    draws: tuple[int, ...]  # of each of these, the number of the draw or -1
    at: tuple[int, ...]  # of each span, the number of its slots
    memories: tuple[TorchMemory, ...]
    history: int  # slots of a window
    horizon: int
    needs_rows: bool  # whether a column has no strided view

    def fill(self, to: Buffers, rows: Rows, component: Int32s | None) -> None:
        """Fill the buffers of a batch on the host, with rows in arrays of numpy."""
        library.warn_of_absence()
        index = np.arange(count_of(rows))
        by_number = by_component(component)
        each = [(k, None if component is None else torch.from_numpy(index[which])) for k, which in by_number]
        fill_by_torch(self, to, each_array(rows, torch.from_numpy), each)


def torch_plan(spans: Sequence[Span], layout: Sequence[SpanGroup], memories: Sequence[Memory]) -> TorchPlan:
    """The plan for spans in these buffers."""
    alike = [*dict.fromkeys(span.slots for span in spans)]
    device, drawn = memories[0].columns[spans[0].column].device, draws_of(spans)
    fillings = (memory.filling for memory in memories if memory.filling is not None)
    shared = {id(some.fragments): some.fragments for some in fillings}  # by all packs of one memory
    fragments = {k: as_tensors(some, device) for k, some in shared.items() if some is not None}
    of_memories = tuple(
        TorchMemory(
            columns=tuple(_column(memory, group, span) for group in layout for span in group.spans),
            fragments=None if memory.filling is None else fragments.get(id(memory.filling.fragments)),
            width=math.prod(memory.columns[layout[0].spans[0].column].shape[1:]),
        )
        for memory in memories
    )
    return TorchPlan(
        layout=tuple(layout),
        slots=tuple(torch.tensor([*slots], dtype=torch.int64, device=device) for slots, _ in alike),
        draws=tuple(-1 if draw is None else drawn.index(draw) for _, draw in alike),
        at=tuple(alike.index(span.slots) for group in layout for span in group.spans),
        memories=of_memories,
        history=max(-span.start for span in spans),
        horizon=max(span.stop for span in spans),
        needs_rows=any(column.strided is None for memory in of_memories for column in memory.columns),
    )


def _column(memory: Memory, group: SpanGroup, span: Span) -> TorchColumn:
    items, filling = as_integers(memory.columns[span.column]), memory.filling
    distance, most = 1, 1 if group.shape[1:] else _MOST_STEPS
    if span.variates is not None:  # a window is one column of rows with several
        distance, most, items = math.prod(items.shape[1:]), 1, items.view(-1)
    fill = None if filling is None else filling.fills[span.column].to(items.device)
    by_anchors = items.is_cpu and span.step <= most
    return TorchColumn(items, fill, _strided(items.view(-1), group, distance) if by_anchors else None)


def _strided(items: torch.Tensor, group: SpanGroup, distance: int) -> torch.Tensor:
    """A window at each row of a column; its items lie at a `distance` from each other."""
    slots, row = group.spans[0].slots[0], math.prod(group.shape[1:])
    window = (slots[-1] - slots[0] + 1) * row
    positions = (items.numel() - (window - 1) * distance - 1) // row + 1
    return items.as_strided((max(0, positions), window), (row, distance))


def fill_by_torch(plan: TorchPlan, to: Buffers, rows: Rows, components: ByComponent) -> None:
    """Fill the buffers of a batch. All tensors lie where the columns do."""
    if to.values[0].is_cpu:
        check_threads()
        # as where the kernel writes, nothing of this shows in the counters of writes of the batch
        to = Buffers(*([tensor.data for tensor in tensors] for tensors in to))
    for k, which in components:
        if which is None:
            _fill(plan, plan.memories[k], rows, to)
        else:
            _fill_some(plan, plan.memories[k], rows, which, to)


def _fill_some(plan: TorchPlan, memory: TorchMemory, rows: Rows, which: torch.Tensor, to: Buffers) -> None:
    """Fill the buffers with some of the windows, by their index."""
    count = len(which)
    values = [buffer.new_empty(group.buffer_shape(count)) for group, buffer in zip(plan.layout, to.values)]
    some = Buffers(values, [tensor.new_empty(count, tensor.shape[1]) for tensor in to.observed])
    _fill(plan, memory, some_of(rows, which), some)
    targets = [*_targets(plan, to.values, count_of(rows)), *to.observed]
    for target, found in zip(targets, [*_targets(plan, values, count), *some.observed]):
        target.index_copy_(0, which, found)


def _fill(plan: TorchPlan, memory: TorchMemory, rows: Rows, to: Buffers) -> None:
    """Fill the buffers with windows of one memory: by their anchors if all are whole, else by the rows of all slots."""
    anchors = None
    if to.values[0].is_cpu and not isinstance(rows, Picked):  # elsewhere, whether all are whole would wait
        anchors, inside = whole(rows, memory.fragments, plan.history, plan.horizon)
        anchors = anchors if inside is None or inside.all() else None
    found, empty = list[torch.Tensor](), list[torch.Tensor]()
    if anchors is None or plan.needs_rows:
        found, empty = _matrices(plan, memory, rows, to.observed)
    else:
        for tensor in to.observed:
            tensor.fill_(True)
    spans = [span for group in plan.layout for span in group.spans]
    for span, column, number, target in zip(spans, memory.columns, plan.at, _targets(plan, to.values, count_of(rows))):
        if anchors is not None and column.strided is not None:
            _select(column.strided, _items(memory, rows, anchors + span.start), target, span.step)
        else:
            _look_up(column, found[number], empty[number] if empty else None, target)


def _targets(plan: TorchPlan, buffers: Sequence[torch.Tensor], count: int) -> Iterator[torch.Tensor]:
    """Where the integers of each span are written, `(windows, time, ...)`."""
    for group, buffer in zip(plan.layout, buffers):
        yield from as_integers(buffer).view(len(group.spans), count, *group.shape)


def _matrices(
    plan: TorchPlan, memory: TorchMemory, rows: Rows, observed: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The row of each slot, and which slots are empty, `(windows, time)` for each kind of slots; fills `observed`."""
    found = [matrix(rows, memory.fragments, slots, draw) for slots, draw in zip(plan.slots, plan.draws)]
    for tensor, of_slots in zip(observed, found):
        torch.ge(of_slots, 0, out=tensor)
        of_slots.clamp_(min=0)  # any row; what it holds is overwritten
    return [_items(memory, rows, of_slots.T).T for of_slots in found], [~tensor for tensor in observed]


def _items(memory: TorchMemory, rows: Rows, found: torch.Tensor) -> torch.Tensor:
    """Rows of windows, `(..., windows)`, as the items of the columns of a pack that the windows hold, in place."""
    variates = rows.variates if isinstance(rows, InSlots) else None
    return found if variates is None else found.mul_(memory.width).add_(variates)


def _look_up(column: TorchColumn, rows: torch.Tensor, empty: torch.Tensor | None, target: torch.Tensor) -> None:
    """Write the items at rows, `(windows, time)`, and in empty slots the fill."""
    values = target.view(-1, *target.shape[2:])
    torch.index_select(column.items, 0, rows.view(-1), out=values)
    if empty is not None and column.fill is not None:
        values.masked_fill_(empty.view(-1, *[1] * (values.ndim - 1)), column.fill)


def _select(strided: torch.Tensor, positions: torch.Tensor, buffer: torch.Tensor, step: int) -> None:
    """Fill a buffer with one in `step` of the items at each position."""
    if step == 1:
        torch.index_select(strided, 0, positions, out=buffer.view(len(buffer), strided.shape[1]))
        return
    some = max(1, _BYTES_BETWEEN // (strided.shape[1] * strided.itemsize))
    for first in range(0, len(positions), some):
        among = slice(first, first + some)
        buffer[among] = strided.index_select(0, positions[among])[:, ::step]
