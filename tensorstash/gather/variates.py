"""Each column of packs as a row of its own: which rows a batch has, and their values.

The kernel reads the columns where they lie in their packs. Without it, and where values of empty slots are computed,
whole packs are gathered, and then the columns taken out of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s, as_array, as_integers
from tensorstash.gather.each import Variates
from tensorstash.gather.gather import GatherPlan, compile_plan, names_of, select
from tensorstash.gather.layout import as_batch
from tensorstash.gather.memory import Memory, by_source
from tensorstash.gather.native import source_of
from tensorstash.gather.rows import InSlots
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.native import kernel, library
from tensorstash.native.permutation import Uint64s, mix

_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64 from one number to the next
_WORD = (1 << 64) - 1

# memory for an entry with this name, shape and dtype
Take = Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]


def new_memory(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG001  a `Take`
    """Fresh memory for an entry."""
    return torch.empty(shape, dtype=dtype)


class Rows(NamedTuple):
    """The rows of a batch: the columns of each window, one window after the other."""

    window: Int64s  # (rows,) the place of the window
    variate: Int64s  # the column within its pack
    pack: Int64s  # the number of the pack among those of the spans
    column: Int32s  # the number of the column among all columns of all memories

    def of(self, which: Any) -> "Rows":
        """Those at an index."""
        return Rows(*(array[which] for array in self))


@dataclass(frozen=True, eq=False, slots=True)
class VariatePlan:
    """How spans of the same `ts.each` are gathered from one memory or several."""

    variates: Variates
    spans: tuple[Span, ...]
    draws: list[int]  # the numbers of their draws among those of all spans
    memories: Sequence[Memory]
    widths: Int64s  # (memories, packs)
    first: Int64s  # (memories,) the number of the first column of each
    variate: Int64s  # (columns of all memories,)
    pack: Int64s  # likewise
    dtype: torch.dtype
    compiled: kernel.Compiled | None  # where the kernel reads the columns
    packs: dict[int, GatherPlan] = field(default_factory=dict)  # of each memory, made when it is needed

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, in all spans."""
        return sum(map(len, self.spans)) * self.dtype.itemsize

    @property
    def most_rows(self) -> Int64s:
        """(memories,) the rows of a window."""
        most = self.variates.most
        return (self.widths if most is None else np.minimum(self.widths, most)).sum(1)


def variate_plans(spans: Sequence[Span], memories: Sequence[Memory]) -> tuple[VariatePlan, ...]:
    """A plan for the spans of each `ts.each` among all spans of windows."""
    alike: dict[Variates, list[Span]] = {}
    for span in spans:
        if span.variates is not None:
            alike.setdefault(span.variates, []).append(span)
    return tuple(_plan(variates, members, draws_in(members, spans), memories) for variates, members in alike.items())


def draws_in(some: Sequence[Span], every: Sequence[Span]) -> list[int]:
    """The numbers of the draws of some spans among those of all."""
    numbers = draws_of(every)
    return [numbers.index(draw) for draw in draws_of(some)]


def _plan(variates: Variates, spans: Sequence[Span], draws: list[int], memories: Sequence[Memory]) -> VariatePlan:
    names = variates.columns
    widths = np.array([[math.prod(memory.columns[name].shape[1:]) for name in names] for memory in memories])
    counts, flat = widths.sum(1), widths.reshape(-1)
    fillings = [memory.filling for memory in memories if memory.filling is not None]
    is_computed = any(name in filling.computed for filling in fillings for name in names)
    return VariatePlan(
        variates=variates,
        spans=tuple(spans),
        draws=draws,
        memories=memories,
        widths=widths,
        first=np.cumsum(counts) - counts,
        variate=counted(flat),
        pack=np.tile(np.arange(len(names)), len(memories)).repeat(flat),
        dtype=memories[0].columns[names[0]].dtype,
        compiled=None if library.LIBRARY is None or is_computed else _compiled(variates, spans, memories),
    )


def _compiled(variates: Variates, spans: Sequence[Span], memories: Sequence[Memory]) -> kernel.Compiled:
    """The columns of all packs as sources of the kernel."""
    fills = next((memory.filling.fills for memory in memories if memory.filling is not None), None)
    empty = 0 if fills is None else int(fills[variates.columns[0]]) & _WORD
    draws = draws_of(spans)
    return kernel.compile_plan(
        [kernel.SlotRange(s.start, len(s), s.step, empty, draw_number(s, draws)) for s in spans],
        [
            source_of([as_array(memory.columns[name])] * len(spans), memory.filling)
            for memory in memories
            for name in variates.columns
        ],
        history=max(0, *(-span.start for span in spans)),
        horizon=max(0, *(span.stop for span in spans)),
        apart=True,
    )


def counted(counts: Int64s) -> Int64s:
    """`0, 1, ..., count - 1` for each count, in a row."""
    stops = np.cumsum(counts, dtype=np.int64)
    return np.arange(int(stops[-1]) if len(stops) else 0) - np.repeat(stops - counts, counts)


def rows_of(plan: VariatePlan, source: Int32s | None, windows: int, keys: Uint64s | None) -> Rows:
    """The rows of windows of the memories `source`, `(windows,)`.

    `keys`, `(packs, windows)`, decide which columns are drawn; without them, all columns are rows.
    """
    number = np.zeros(windows, np.int32) if source is None else source
    counts = plan.widths.sum(1)[number]
    window = np.repeat(np.arange(windows), counts)
    column = np.repeat(plan.first[number], counts)
    column += counted(counts)
    rows = Rows(window, plan.variate[column], plan.pack[column], column.astype(np.int32))
    return rows if keys is None or plan.variates.most is None else rows.of(_is_drawn(rows, keys, plan.variates.most))


def _is_drawn(rows: Rows, keys: Uint64s, most: int) -> Any:
    """Which rows are among the `most` of their window and pack with the lowest hashes, `(rows,)` bool."""
    hashes = mix(keys[rows.pack, rows.window] + (rows.variate.astype(np.uint64) + np.uint64(1)) * _STEP)
    group = rows.window * len(keys) + rows.pack  # ascending
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    drawn = np.empty(len(group), np.bool_)
    drawn[np.lexsort((hashes, group))] = counted(np.diff(begins, append=len(group))) < most
    return drawn


def gather_rows(  # noqa: PLR0917  as `select`, and the rows
    plan: VariatePlan,
    rows: Rows,
    source: Int32s | None,
    anchors: Int64s,
    skips: Int64s | None,
    take: Take,
) -> dict[str, torch.Tensor]:
    """The spans of a batch, `(rows, time)`, their `observed` if slots may be empty, and what each row is.

    Args:
        plan: how windows are taken.
        rows: the rows of all windows.
        source: the number of the memory of each window, `(windows,)`; `None` if there is one memory.
        anchors: the slots of the windows' anchors, `(windows,)`.
        skips: the slots that the draws of all spans leave out, `(draws, windows)`; `None` takes the longest spans.
        take: memory for the values.
    """
    values = [take(span.name, (len(rows.window), len(span)), plan.dtype) for span in plan.spans]
    filled = any(memory.filling is not None for memory in plan.memories)
    lengths = {span.slots: len(span) for span in plan.spans} if filled else {}
    seen = {slots: torch.empty(len(rows.window), length, dtype=torch.bool) for slots, length in lengths.items()}
    flags = [seen.get(span.slots) for span in plan.spans]
    skips = None if skips is None or not plan.draws else skips[plan.draws]
    if plan.compiled is not None:
        _copy(plan.compiled, rows, anchors, skips, values, flags)
    else:
        _by_pack(plan, rows, source, anchors, skips, values, flags)
    numbers = {name: torch.from_numpy(getattr(rows, name)) for name in ("window", "variate", "pack")}
    batch = {span.name: tensor for span, tensor in zip(plan.spans, values)}
    batch |= {f"{span.name}.observed": of_span for span, of_span in zip(plan.spans, flags) if of_span is not None}
    return batch | {f"{span.name}.{name}": tensor for span in plan.spans for name, tensor in numbers.items()}


def _copy(  # noqa: PLR0917
    compiled: kernel.Compiled,
    rows: Rows,
    anchors: Int64s,
    skips: Int64s | None,
    values: Sequence[torch.Tensor],
    flags: Sequence[torch.Tensor | None],
) -> None:
    """Fill values and flags by the kernel. Flags that spans share are written once."""
    addresses = [0 if of_span is None else of_span.data_ptr() for of_span in flags]
    written = [0 if address in addresses[:k] else address for k, address in enumerate(addresses)]
    kernel.gather(
        compiled,
        anchors[rows.window],
        [tensor.data_ptr() for tensor in values],
        written if any(written) else None,
        rows.column,
        None if skips is None else np.take(skips, rows.window, 1),
        torch.get_num_threads(),
    )


def _by_pack(  # noqa: PLR0917
    plan: VariatePlan,
    rows: Rows,
    source: Int32s | None,
    anchors: Int64s,
    skips: Int64s | None,
    values: Sequence[torch.Tensor],
    flags: Sequence[torch.Tensor | None],
) -> None:
    """Fill values and flags from whole packs. In numpy, because torch's threads do not survive a fork."""
    for marks in {id(flag): flag for flag in flags if flag is not None}.values():
        marks.numpy().fill(True)
    for k, which in by_source(source):
        windows = np.arange(len(anchors))[which]
        batch = _packs(plan, k, anchors[windows], None if skips is None else np.take(skips, windows, 1))
        place = np.full(len(anchors), -1)
        place[windows] = np.arange(len(windows))
        for pack in range(len(plan.variates.columns)):
            at = np.flatnonzero((place[rows.window] >= 0) & (rows.pack == pack))
            window, variate = place[rows.window[at]], rows.variate[at]
            for span, tensor, flag in zip(plan.spans, values, flags):
                of_pack = as_integers(batch[f"{span.name} {pack}"]).numpy()
                columns = of_pack.reshape(*of_pack.shape[:2], plan.widths[k, pack])
                as_integers(tensor).numpy()[at] = columns[window, :, variate]
                seen = batch.get(f"{span.name} {pack}.observed")
                if flag is not None and seen is not None:
                    flag.numpy()[at] = seen.numpy()[window]


def _packs(plan: VariatePlan, number: int, anchors: Int64s, skips: Int64s | None) -> dict[str, torch.Tensor]:
    """The packs of windows of one memory, `(windows, time, ...)`, and their `observed`."""
    if number not in plan.packs:
        spans = [
            Span(f"{span.name} {pack}", name, span.start, span.stop, span.step, span.draw)
            for span in plan.spans
            for pack, name in enumerate(plan.variates.columns)
        ]
        plan.packs[number] = compile_plan(spans, [plan.memories[number]])
    whole = plan.packs[number]
    buffers = [torch.empty(group.buffer_shape(len(anchors)), dtype=group.dtype) for group in whole.groups]
    (observed,) = select([whole], None, [InSlots(anchors, skips)], [buffers])
    return as_batch(whole.groups, names_of([whole]), buffers) | observed
