"""Batches by the compiled kernel, which copies all spans of windows in one call."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, as_array
from tensorstash.gather.layout import Flags, SpanGroup
from tensorstash.gather.memory import Filling, Fragments, Memory
from tensorstash.gather.rows import InSlots, Picked, Rows, Stretches, as_fragments
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.native import kernel

_WORD = (1 << 64) - 1
_ONE = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class NativePlan:
    """How the spans of a window are copied, and where they go in the buffers of a batch."""

    plan: kernel.Compiled
    places: tuple[tuple[int, int], ...]  # of each span, its buffer and where it begins there, in bytes per window
    written: tuple[int, ...]  # of each tensor of flags, the one span by which the kernel writes it
    length: int  # slots of a window
    first: Int32s | None  # where windows hold one column of a pack: the number of the first column of each memory


def native_plan(
    spans: Sequence[Span], layout: Sequence[SpanGroup], flags: Flags | None, memories: Sequence[Memory]
) -> NativePlan:
    """Describe the spans of each buffer to the kernel, and each memory."""
    ordered = [*chain.from_iterable(group.spans for group in layout)]
    columns, fillings = memories[0].columns, [memory.filling for memory in memories if memory.filling is not None]
    empty = [int(fillings[0].fills[span.column]) & _WORD if fillings else 0 for span in ordered]
    draws, starts = draws_of(spans), list[int]()
    for group in layout:
        nbytes = [len(span) * columns[span.column][:1].nbytes for span in group.spans]
        starts += np.cumsum([0, *nbytes[:-1]]).tolist()
    history, horizon = max(0, *(-span.start for span in spans)), max(0, *(span.stop for span in spans))
    apart = spans[0].variates is not None
    plan = kernel.compile_plan(
        [
            kernel.SlotRange(span.start, len(span), span.step, bits, draw_number(span, draws))
            for span, bits in zip(ordered, empty)
        ],
        [source_of([as_array(memory.columns[span.column]) for span in ordered], memory.filling) for memory in memories],
        history=history,
        horizon=horizon,
        apart=apart,
    )
    widths = [math.prod(memory.columns[ordered[0].column].shape[1:]) for memory in memories] if apart else []
    slots = [span.slots for span in ordered]
    return NativePlan(
        plan,
        places=tuple(zip((k for k, group in enumerate(layout) for _ in group.spans), starts)),
        written=() if flags is None else tuple(map(slots.index, flags.slots)),
        length=history + horizon,
        first=np.cumsum([0, *widths[:-1]], dtype=np.int32) if apart else None,
    )


def source_of(items: list[NDArray[Any]], filling: Filling | None) -> kernel.Source:
    """A memory, by the columns of the spans and its fragments, for the kernel."""
    if filling is None:
        return kernel.Source(items, None, None)
    fragments = filling.fragments
    if fragments is None:  # those of each call take the place of this one
        fragments, _ = as_fragments(Stretches(_ONE, _ONE, _ONE), filling.history)
    return kernel.Source(items, *_described(fragments))


def _described(fragments: Fragments) -> tuple[tuple[Any, Any, Any], kernel.Pieces]:
    guide = fragments.guide
    pieces = kernel.pieces(guide.records, guide.table, guide.shift)
    return (fragments.first, fragments.row, fragments.rows), pieces


def fill(
    native: NativePlan,
    source: Int32s | None,
    rows: Rows,
    parts: Sequence[Sequence[torch.Tensor]],
    flags: Sequence[Sequence[torch.Tensor]],
) -> None:
    """Fill the buffers of parts, and the flags of each, or no flags if no slot can be empty.

    Each part has a buffer for each group of spans and gets as many windows as the others.
    """
    count = rows.windows // len(parts)
    if isinstance(rows, Stretches):
        fragments, anchors = as_fragments(rows, native.length)
        native = replace(native, plan=kernel.with_fragments(native.plan, *_described(fragments)))
        rows = InSlots(anchors)
    elif isinstance(rows, InSlots) and native.first is not None:
        first = native.first[0] if source is None else native.first[source]
        source = first + rows.variates.astype(np.int32)
    out: list[int] = []
    for buffers in parts:
        bases = [buffer.data_ptr() for buffer in buffers]
        out += [bases[buffer] + start * count for buffer, start in native.places]
    addresses = None
    if native.written:
        addresses = [0] * len(out)
        for part, tensors in enumerate(flags):
            for k, tensor in zip(native.written, tensors):
                addresses[part * len(native.places) + k] = tensor.data_ptr()
    threads = torch.get_num_threads()
    if isinstance(rows, Picked):
        kernel.take(native.plan, rows.rows, out, addresses or [0] * len(out), source, threads, len(parts))
        return
    kernel.gather(native.plan, rows.anchors, out, addresses, source, rows.skips, threads, len(parts))
