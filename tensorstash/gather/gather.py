"""Rows to batches: spans are compiled once, and then filled by one of two executors.

The kernel gathers on the host, in one call for many windows. Operations of torch gather where it was not compiled, and
on devices. Both fill the same buffers: one call for all columns of an item size costs less than one per column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather import by_torch, native
from tensorstash.gather.by_torch import Sources, TorchPlan, torch_plan
from tensorstash.gather.computed import Computed, ComputedValues, compute_in, computed_spans
from tensorstash.gather.layout import Batch, Flags, SpanGroup, as_batch, flags_of, span_groups
from tensorstash.gather.memory import Memory, by_source
from tensorstash.gather.native import NativePlan, native_plan
from tensorstash.gather.rows import InSlots, Rows
from tensorstash.gather.span import Span
from tensorstash.native import library
from tensorstash.segments.limits import no_room_for_batch


@dataclass(frozen=True, slots=True)
class Part:
    """The spans of a batch that share one kind of rows: those in slots, or those over one stretch."""

    spans: tuple[Span, ...]
    groups: tuple[SpanGroup, ...]
    flags: Flags | None  # where slots may be empty
    executor: NativePlan | TorchPlan
    computed: tuple[Computed, ...]
    distances: tuple[int, ...]  # the groups of spans that hold distances from an origin


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How the spans of windows are taken from one memory or several."""

    parts: tuple[Part, ...]
    groups: tuple[SpanGroup, ...]  # of all parts, one after the other
    names: tuple[str, ...]  # of the spans, in the order of a batch
    window_bytes: int  # of one window in a batch


def compile_plan(
    parts: Sequence[tuple[Sequence[Span], Sequence[Memory]]], *, together: bool = True, by_kernel: bool = True
) -> GatherPlan:
    """The plan for the spans of each part, and the memories that they are gathered from.

    The columns of a part's spans have the same dtypes, shapes and fills in all its memories.

    Args:
        parts: spans in slots, and spans over each stretch.
        together: spans of one block, length and step share a buffer; else each has its own.
        by_kernel: the kernel gathers if it was compiled; else torch does, which any device can.
    """
    native = by_kernel and library.LIBRARY is not None
    compiled = tuple(_part(spans, memories, together, native) for spans, memories in parts)
    columns = [(memories[0].columns, spans) for spans, memories in parts]
    return GatherPlan(
        parts=compiled,
        groups=tuple(group for part in compiled for group in part.groups),
        names=tuple(span.name for part in compiled for span in part.spans),
        window_bytes=sum(len(span) * _row_bytes(span, held[span.column]) for held, spans in columns for span in spans),
    )


def _row_bytes(span: Span, column: torch.Tensor) -> int:
    return column[:1].nbytes if span.variates is None else column.itemsize


def _part(spans: Sequence[Span], memories: Sequence[Memory], together: bool, by_kernel: bool) -> Part:
    first = memories[0]
    home = {name: block.names[0] for block in first.blocks for name in block.names}
    homes = {span.name: home[span.column] if together else span.name for span in spans}
    groups = span_groups(spans, first.columns, homes)
    flags = flags_of(spans) if any(memory.filling is not None for memory in memories) else None
    return Part(
        spans=tuple(spans),
        groups=tuple(groups),
        flags=flags,
        executor=native_plan(spans, groups, flags, memories) if by_kernel else torch_plan(spans, groups, memories),
        computed=computed_spans(spans, groups, flags, memories) if flags else (),
        distances=tuple(k for k, group in enumerate(groups) if group.spans[0].is_distance),
    )


def gather(plan: GatherPlan, source: Int32s | None, rows: Sequence[Rows]) -> Batch:
    """A fresh batch of the windows at `rows` of the memories `source`, `(batch,)`; see `select`."""
    buffers = new_buffers(plan.groups, rows[0].windows if rows else 0, plan.window_bytes)
    (flags,) = select(plan, source, rows, [buffers])
    return as_batch(plan.groups, plan.names, buffers) | flags


def new_buffers(groups: Sequence[SpanGroup], count: int, window_bytes: int, device: Any = None) -> list[torch.Tensor]:
    """Uninitialised buffers for a batch of `count` windows."""
    try:
        return [torch.empty(group.buffer_shape(count), dtype=group.dtype, device=device) for group in groups]
    except (RuntimeError, MemoryError) as error:
        raise no_room_for_batch(count * window_bytes) from error


def select(
    plan: GatherPlan, source: Int32s | None, rows: Sequence[Rows], buffers: Sequence[Sequence[torch.Tensor]]
) -> list[Batch]:
    """Fill buffers on the host, of several batches of as many windows each.

    Returns `<span>.observed` of each batch where slots may be empty: a `(windows, time)` bool tensor per span.

    Args:
        plan: how windows are taken.
        source: the number of the memory of each window, `(windows,)`; `None` if there is one memory.
        rows: of each part of the plan, the rows of all windows.
        buffers: of each batch, one per group, of its `buffer_shape` and dtype.
    """
    if not rows:
        return [Batch() for _ in buffers]
    count, flags, at = rows[0].windows // len(buffers), [Batch() for _ in buffers], 0
    for part, of_part in zip(plan.parts, rows):
        upto = at + len(part.groups)
        own = buffers if len(plan.parts) == 1 else [of_batch[at:upto] for of_batch in buffers]
        at = upto
        observed = [()] * len(buffers) if part.flags is None else [part.flags.empty(count) for _ in buffers]
        if isinstance(part.executor, NativePlan):
            native.fill(part.executor, source, of_part, own, observed)
        else:
            _fill_by_torch(part.executor, source, of_part, own, observed)
        if part.flags is None:
            continue
        for k, seen in enumerate(observed):
            if part.computed or part.distances:
                _finish(part, *_of_batch(k, len(buffers), source, of_part), own[k], seen)
            flags[k].update(part.flags.named(seen))
    return flags


def _fill_by_torch(
    plan: TorchPlan,
    source: Int32s | None,
    rows: Rows,
    buffers: Sequence[Sequence[torch.Tensor]],
    flags: Sequence[Sequence[torch.Tensor]],
) -> None:
    library.warn_of_absence()
    for k, (of_batch, seen) in enumerate(zip(buffers, flags)):
        numbers, own = _of_batch(k, len(buffers), source, rows)
        sources: Sources = [(0, None)]
        if numbers is not None:
            index = np.arange(len(numbers))
            sources = [(number, torch.from_numpy(index[which])) for number, which in by_source(numbers)]
        # as where the kernel writes, nothing of this shows in the counters of writes of the batch
        uncounted = [[tensor.data for tensor in tensors] for tensors in (of_batch, seen)]
        by_torch.fill(plan, sources, own.with_each(torch.from_numpy), *uncounted)


def _of_batch(k: int, batches: int, source: Int32s | None, rows: Rows) -> tuple[Int32s | None, Rows]:
    """The memories and the rows of batch k, of so many of equal size."""
    if batches == 1:
        return source, rows
    count = rows.windows // batches
    among = slice(k * count, (k + 1) * count)
    return None if source is None else source[among], rows.of(among)


def _finish(
    part: Part, source: Int32s | None, rows: Rows, buffers: Sequence[torch.Tensor], observed: Sequence[torch.Tensor]
) -> None:
    """Write what follows from the rows of a batch: computed values and distances. In numpy, for forked processes."""
    if not isinstance(rows, InSlots):
        for k in part.distances:
            ticks = part.groups[k].spans[0].distance
            _to_distances(buffers[k].numpy(), ticks, rows.origin, observed[0].numpy())
        return
    for computed in part.computed:
        compute_in(computed, source, rows, buffers[computed.buffer], observed[computed.flags])


def _to_distances(values: Any, ticks: int, origin: Any, observed: Any) -> None:
    """Subtract values, `(spans * windows, time)`, each so many ticks, from the origins of their windows, in place.

    An empty slot becomes 0.
    """
    by_span = values.reshape(-1, *observed.shape)
    by_span[:] = (origin[:, None] - by_span * ticks) * observed


def gather_on_device(
    plan: GatherPlan, sources: Sources, rows: Sequence[Rows], computed: Sequence[ComputedValues]
) -> Batch:
    """A fresh batch of columns on a device; all tensors lie there.

    Args:
        plan: how windows are taken, `by_kernel=False`.
        sources: the number of each memory, and which windows it has.
        rows: of each part of the plan, the rows of all windows.
        computed: the values of empty slots that the host has computed.
    """
    if not rows:
        return Batch()
    device, count, at = rows[0][0].device, rows[0].windows, 0
    buffers, flags = new_buffers(plan.groups, count, plan.window_bytes, device), Batch()
    for part, of_part in zip(plan.parts, rows):
        own = buffers[at : at + len(part.groups)]
        at += len(part.groups)
        observed = [] if part.flags is None else part.flags.empty(count, device)
        assert isinstance(part.executor, TorchPlan)
        by_torch.fill(part.executor, sources, of_part, own, observed)
        if not isinstance(of_part, InSlots):
            for k in part.distances:
                _to_distances(own[k], part.groups[k].spans[0].distance, of_part.origin, observed[0])
        else:
            for values in computed:
                values.write(own[values.computed.buffer])
        if part.flags is not None:
            flags.update(part.flags.named(observed))
    fresh = [buffer.unsafe_chunk(1)[0] for buffer in buffers]  # with counters of writes of their own
    return as_batch(plan.groups, plan.names, fresh) | flags


def gather_into(plan: GatherPlan, anchors: Int64s, out: Mapping[str, torch.Tensor]) -> None:
    """Write a batch of windows in slots into the caller's tensors, `(batch, time, ...)`; no spans share a group."""
    buffers = []
    for group in plan.groups:
        shape = group.buffer_shape(len(anchors))
        target = _target(out, group.spans[0].name, shape, group.dtypes[0])
        fits = target.is_contiguous() and target.device.type == "cpu"  # the kernel writes at its address
        buffers.append(target.view(group.dtype) if fits else torch.empty(shape, dtype=group.dtype))
    (observed,) = select(plan, None, [InSlots(anchors)], [buffers])
    for buffer in buffers:  # so that autograd notices the writes of the kernel; torch 2.4 takes one at a time
        torch.autograd.graph.increment_version(buffer)
    batch = as_batch(plan.groups, plan.names, buffers) | observed
    copy_into({name: tensor for name, tensor in batch.items() if not _same_memory(tensor, out.get(name))}, out)


def _same_memory(tensor: torch.Tensor, target: torch.Tensor | None) -> bool:
    return target is not None and tensor.data_ptr() == target.data_ptr()


def copy_into(batch: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
    """Write tensors into the caller's tensors of the same names."""
    for name, tensor in batch.items():
        _target(out, name, tuple(tensor.shape), tensor.dtype).copy_(tensor)


def _target(out: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(out, Mapping):
        raise TypeError(f"out must be an earlier batch, a mapping from names to tensors, got a {type(out).__name__}.")
    target = out.get(name)
    if not isinstance(target, torch.Tensor):
        found = "nothing" if target is None else f"a {type(target).__name__}"
    elif target.shape != shape or target.dtype != dtype:
        found = f"{tuple(target.shape)} {target.dtype}"
    elif target.requires_grad:
        found = "one that requires a gradient"
    else:
        return target
    raise ValueError(f"out must have a {shape} {dtype} tensor for {name!r}, got {found}.")
