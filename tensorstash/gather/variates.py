"""Each column of packs as a row of its own: which rows a batch has. Their values are gathered as those of windows.

To gather, each pack of each memory is a component of its own, in whose memory a row holds one column.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.records import some_of
from tensorstash.gather.each import Variates
from tensorstash.gather.gather import GatherPlan, compile_plan, gather_into, names_of
from tensorstash.gather.layout import as_batch
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots
from tensorstash.gather.span import Span, draws_of
from tensorstash.native.permutation import Uint64s, mix

_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64 from one number to the next

Of = TypeVar("Of")

# memory for an entry with this name, shape and dtype
Take = Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]


def new_memory(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG001  a `Take`
    """Fresh memory for an entry."""
    return torch.empty(shape, dtype=dtype)


class VariateRows(NamedTuple):
    """The rows of a batch: the columns of each window, one window after the other."""

    window: Int64s  # (rows,) the number of the window in the batch
    variate: Int64s  # the column within its pack
    pack: Int64s  # the number of the pack among those of the spans
    component: Int32s  # the number of the pack among those of all memories


@dataclass(frozen=True, eq=False, slots=True)
class VariatePlan:
    """How spans of the same `ts.each` are gathered from one memory or several."""

    variates: Variates
    spans: tuple[Span, ...]
    draws: list[int]  # the numbers of their draws among those of all spans
    gather: GatherPlan  # of rows; its memories are the packs of all memories
    widths: Int64s  # (memories, packs)
    first: Int64s  # (memories,) the number of the first column of each
    variate: Int64s  # (columns of all memories,)
    pack: Int64s  # likewise
    component: Int32s  # likewise

    @property
    def most_rows(self) -> Int64s:
        """(memories,) the rows of a window."""
        most = self.variates.most
        return (self.widths if most is None else np.minimum(self.widths, most)).sum(1)


def variate_plans(
    spans: Sequence[Span], memories: Sequence[Memory], *, by_kernel: bool = True
) -> tuple[VariatePlan, ...]:
    """A plan for the spans of each `ts.each` among all spans of windows; `by_kernel` as for `compile_plan`."""
    alike: dict[Variates, list[Span]] = {}
    for span in spans:
        if span.variates is not None:
            alike.setdefault(span.variates, []).append(span)
    numbers = draws_of(spans)
    plans = list[VariatePlan]()
    for variates, members in alike.items():
        names = variates.columns
        widths = np.array([[math.prod(memory.columns[name].shape[1:]) for name in names] for memory in memories])
        counts, flat = widths.sum(1), widths.reshape(-1)
        packs = [_pack_of(memory, name, members[0]) for memory in memories for name in names]
        plans.append(
            VariatePlan(
                variates=variates,
                spans=tuple(members),
                draws=[numbers.index(draw) for draw in draws_of(members)],
                gather=compile_plan(members, packs, together=False, by_kernel=by_kernel),
                widths=widths,
                first=np.cumsum(counts) - counts,
                variate=count_up(flat),
                pack=np.tile(np.arange(len(names)), len(memories)).repeat(flat),
                component=np.arange(len(flat), dtype=np.int32).repeat(flat),
            )
        )
    return tuple(plans)


def _pack_of(memory: Memory, name: str, span: Span) -> Memory:
    """One pack of a memory, under the name that the span has for its columns."""
    pack, filling, column = memory.columns[name], memory.filling, span.column
    if filling is not None:
        computed = {column: filling.computed[name]} if name in filling.computed else {}
        # all rows of a span are filled alike, and those of computed columns are then written over
        filled = next((other for other in span.columns if other not in filling.computed), name)
        filling = replace(filling, fills={column: filling.fills[filled]}, computed=computed)
    return Memory(memory.stash, {column: pack}, filling)


def count_up(counts: Int64s) -> Int64s:
    """`0, 1, ..., count - 1` for each count, in a row."""
    stops = np.cumsum(counts, dtype=np.int64)
    return np.arange(int(stops[-1]) if len(stops) else 0) - np.repeat(stops - counts, counts)


def rows_of(plan: VariatePlan, component: Int32s | None, windows: int, keys: Uint64s | None) -> VariateRows:
    """The rows of windows, of which `component`, `(windows,)`, is the component of each; `None`: there is only one.

    `keys`, `(packs, windows)`, decide which columns are drawn; without them, all columns are rows.
    """
    number = np.zeros(windows, np.int32) if component is None else component
    counts = plan.widths.sum(1)[number]
    window = np.repeat(np.arange(windows), counts)
    column = np.repeat(plan.first[number], counts)
    column += count_up(counts)
    rows = VariateRows(window, plan.variate[column], plan.pack[column], plan.component[column])
    if keys is None or plan.variates.most is None:
        return rows
    return some_of(rows, _is_drawn(rows, keys, plan.variates.most))


def in_slots(plan: VariatePlan, rows: VariateRows, anchors: Int64s, skips: Int64s | None) -> InSlots:
    """The rows as windows of one column each.

    Args:
        plan: how windows are taken.
        rows: the rows of all windows.
        anchors: the slots of the windows' anchors, `(windows,)`.
        skips: the slots that the draws of all spans leave out, `(windows, draws)`; `None` takes the longest spans.
    """
    skips = None if skips is None or not plan.draws else skips[rows.window][:, plan.draws]
    return InSlots(anchors[rows.window], skips, rows.variate)


def _is_drawn(rows: VariateRows, keys: Uint64s, most: int) -> Any:
    """Which rows are among the `most` of their window and pack with the lowest hashes, `(rows,)` bool."""
    hashes = mix(keys[rows.pack, rows.window] + (rows.variate.astype(np.uint64) + np.uint64(1)) * _STEP)
    group = rows.window * len(keys) + rows.pack  # ascending
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    drawn = np.empty(len(group), np.bool_)
    drawn[np.lexsort((hashes, group))] = count_up(np.diff(begins, append=len(group))) < most
    return drawn


def gather_rows(
    plan: VariatePlan, rows: VariateRows, anchors: Int64s, skips: Int64s | None, take: Take
) -> dict[str, torch.Tensor]:
    """The spans of a batch, `(rows, time)`, their `observed` if slots may be empty, and what each row is.

    The arguments are those of `in_slots`, and `take`, memory for the values.
    """
    groups, count = plan.gather.groups, len(rows.window)
    buffers = [take(group.spans[0].name, group.buffer_shape(count), group.dtype) for group in groups]
    observed = gather_into(buffers, [plan.gather], [in_slots(plan, rows, anchors, skips)], rows.component)
    numbers = {name: torch.from_numpy(getattr(rows, name)) for name in ("window", "variate", "pack")}
    return as_batch(groups, names_of([plan.gather]), buffers) | observed | named(plan, numbers)


def named(plan: VariatePlan, numbers: Mapping[str, Of]) -> dict[str, Of]:
    """What each row is, `(rows,)`, as entries of each span, which share these tensors."""
    return {f"{span.name}.{name}": tensor for span in plan.spans for name, tensor in numbers.items()}
