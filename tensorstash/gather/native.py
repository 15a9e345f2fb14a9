"""Batches by the compiled kernel, which copies all spans of windows in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s, as_array, as_integers
from tensorstash.gather.memory import Compute, Filling, Fragments, Memory, by_source
from tensorstash.gather.span import Draw, Span, draw_number, draws_of
from tensorstash.native import kernel

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Flags:
    """The `<span>.observed` tensors of batches; spans over the same slots share one tensor."""

    lengths: tuple[int, ...]  # of each of these tensors
    written: tuple[int, ...]  # for each, the one span by which the kernel writes it
    names: Mapping[str, int]  # `<span>.observed`, and which of the tensors it is


@dataclass(frozen=True, slots=True)
class Computed:
    """A span whose values are computed where a slot is empty."""

    span: Span
    computes: tuple[Compute | None, ...]  # of each memory
    buffer: int  # the index of the buffer that holds the span
    at: tuple[int, int]  # the place of the span in this buffer, and the number of spans there


@dataclass(frozen=True, slots=True)
class NativePlan:
    """How the spans of a window are copied, and where they go in the buffers of a batch."""

    plan: kernel.Compiled
    places: tuple[tuple[int, int], ...]  # of each span, its buffer and where it begins there, in bytes per window
    flags: Flags | None  # where slots may be empty
    computed: tuple[Computed, ...]


def native_plan(spans: Sequence[Span], groups: Sequence[Sequence[Span]], memories: Sequence[Memory]) -> NativePlan:
    """Describe the spans of each buffer to the kernel, and each memory."""
    ordered = [*chain.from_iterable(groups)]
    columns, fillings = memories[0].columns, [memory.filling for memory in memories if memory.filling is not None]
    empty = [int(fillings[0].fills[span.column]) & _WORD if fillings else 0 for span in ordered]
    draws, starts = draws_of(spans), list[int]()
    for members in groups:
        nbytes = [len(span) * columns[span.column][:1].nbytes for span in members]
        starts += np.cumsum([0, *nbytes[:-1]]).tolist()
    plan = kernel.compile_plan(
        [
            kernel.SlotRange(span.start, len(span), span.step, bits, draw_number(span, draws))
            for span, bits in zip(ordered, empty)
        ],
        [source_of([as_array(memory.columns[span.column]) for span in ordered], memory.filling) for memory in memories],
        history=max(0, *(-span.start for span in spans)),
        horizon=max(0, *(span.stop for span in spans)),
    )
    buffer = (k for k, members in enumerate(groups) for _ in members)
    flags = _flags(spans, ordered) if fillings else None
    return NativePlan(plan, tuple(zip(buffer, starts)), flags, _computed(groups, memories))


def source_of(items: list[NDArray[Any]], filling: Filling | None) -> kernel.Source:
    """A memory, by the columns of the spans and its fragments, for the kernel."""
    if filling is None:
        return kernel.Source(items, None, None)
    fragments = filling.fragments
    pieces = kernel.pieces(fragments.guide.records, fragments.guide.table, fragments.guide.shift)
    return kernel.Source(items, (fragments.first, fragments.row, fragments.rows), pieces)


def with_fragments(native: NativePlan, fragments: Fragments) -> NativePlan:
    """The same plan with other fragments, the same ones in all memories."""
    arrays = (fragments.first, fragments.row, fragments.rows)
    guide = fragments.guide
    pieces = kernel.pieces(guide.records, guide.table, guide.shift)
    return replace(native, plan=kernel.with_fragments(native.plan, arrays, pieces))


def _flags(spans: Sequence[Span], ordered: Sequence[Span]) -> Flags:
    alike: dict[tuple[range, Draw | None], list[int]] = {}
    for k, span in enumerate(ordered):
        alike.setdefault(span.slots, []).append(k)
    slots, written = [*alike], tuple(members[0] for members in alike.values())
    names = {f"{span.name}.observed": slots.index(span.slots) for span in spans}
    return Flags(tuple(len(ordered[k]) for k in written), written, names)


def _computed(groups: Sequence[Sequence[Span]], memories: Sequence[Memory]) -> tuple[Computed, ...]:
    functions = [{} if memory.filling is None else memory.filling.computed for memory in memories]
    return tuple(
        Computed(span, tuple(by_column.get(span.column) for by_column in functions), buffer, (k, len(members)))
        for buffer, members in enumerate(groups)
        for k, span in enumerate(members)
        if any(span.column in by_column for by_column in functions)
    )


def copy(
    native: NativePlan,
    source: Int32s | None,
    anchors: Int64s,
    parts: Sequence[Sequence[torch.Tensor]],
    skips: Int64s | None,
) -> list[dict[str, torch.Tensor]]:
    """Fill buffers with windows of the memories `source` at the slots `anchors`, both `(windows,)`.

    Each of the `parts` has a buffer for each group of spans and gets as many windows as the others. Returns the
    `<span>.observed` tensors of each part, if slots may be empty.
    """
    count = len(anchors) // len(parts)
    out: list[int] = []
    for buffers in parts:
        bases = [buffer.data_ptr() for buffer in buffers]
        out += [bases[buffer] + start * count for buffer, start in native.places]
    threads = torch.get_num_threads()
    if native.flags is None:
        kernel.gather(native.plan, anchors, out, None, source, threads=threads, buffers=len(parts))
        return [{} for _ in parts]
    tensors = [[torch.empty(count, length, dtype=torch.bool) for length in native.flags.lengths] for _ in parts]
    addresses = [0] * len(out)
    for part, of_part in enumerate(tensors):
        for k, tensor in zip(native.flags.written, of_part):
            addresses[part * len(native.places) + k] = tensor.data_ptr()
    kernel.gather(native.plan, anchors, out, addresses, source, skips, threads, len(parts))
    observed = [{name: of_part[k] for name, k in native.flags.names.items()} for of_part in tensors]
    for computed in native.computed:
        for part, (buffers, seen) in enumerate(zip(parts, observed)):
            among = slice(part * count, (part + 1) * count)
            numbers = None if source is None else source[among]
            flags = seen[f"{computed.span.name}.observed"]
            _compute_in(computed, numbers, anchors[among], buffers[computed.buffer], flags)
    return observed


def _compute_in(
    computed: Computed, source: Int32s | None, anchors: Int64s, buffer: torch.Tensor, seen: torch.Tensor
) -> None:
    """Write computed values into the empty slots of a batch; in numpy, for forked processes."""
    window, at = np.nonzero(~seen.numpy())
    if not len(window):
        return
    number, spans = computed.at
    target = as_integers(buffer).numpy().reshape(spans, *seen.shape, -1)[number]
    slots = anchors[window] + (computed.span.start + at * computed.span.step)
    for k, which in by_source(None if source is None else source[window]):
        compute = computed.computes[k]
        if compute is not None:
            target[window[which], at[which]] = compute(slots[which]).numpy()
