"""Rows to batches: spans are compiled once, then copied by the kernel, or by one `index_select` per strided view.

Views are strided because, as measured, `index_select` along their dimension 0 is many times faster than an index
matrix. Along a later dimension `index_select` first copies the whole view. Values viewed as integers of their width are
exact for every dtype and never slower. One call for all columns of an item size beats one call per column.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.common.forks import check_threads
from tensorstash.gather.empty import Patch, anchor_rows, compute_in, fill_in, rows_of, slots_of, taken_rows
from tensorstash.gather.memory import Filling, Memory, by_source
from tensorstash.gather.native import NativePlan, copy, native_plan, with_fragments
from tensorstash.gather.span import Draw, Span, draw_number, draws_of
from tensorstash.gather.stretches import Stretches, as_fragments, to_distances
from tensorstash.native import library
from tensorstash.segments.limits import no_room_for_batch

_SLICED_STEPS = 4  # up to this step, gathering every row and slicing is faster than a strided gather


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """The spans of one block, length and step, which share a buffer."""

    names: tuple[str, ...]  # of the spans
    dtypes: tuple[torch.dtype, ...]  # of the spans
    dtype: torch.dtype  # of the buffer: the one floating dtype of all spans, else integers of their width
    items: tuple[int, ...]  # the shape of a window for `index_select`: (items,) or, strided, (slots, items of a row)
    shape: tuple[int, ...]  # of one window in the buffer
    slice_step: int  # above 1, the batch takes every n-th of the selected slots
    plain: bool  # whether batches are plain parts of the buffer, without a cast or a slice

    def buffer_shape(self, count: int) -> tuple[int, ...]:
        """The shape of the buffer for a batch of `count` windows."""
        return (len(self.names) * count, *self.shape)

    def batch_shape(self, count: int) -> tuple[int, ...]:
        """The shape of each span in a batch of `count` windows."""
        return (count, -(-self.shape[0] // self.slice_step), *self.shape[1:])


@dataclass(frozen=True, slots=True)
class View:
    """The columns of a `SpanGroup` in one memory, for one `index_select`."""

    strided: torch.Tensor  # (positions, *items of the group)
    offsets: NDArray[Any]  # (spans, 1) from a window's anchor row to the position of the span; int32 if that fits
    patch: Patch | None  # where slots may be empty


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How the spans of windows are taken from one memory or several."""

    spans: tuple[Span, ...]
    groups: tuple[SpanGroup, ...]
    window_bytes: int  # of one window in a batch
    filled: bool  # whether slots may be empty in any memory
    native: NativePlan | None  # where the kernel was compiled; else:
    views: tuple[tuple[View, ...], ...]  # of each memory, one per group
    fillings: tuple[Filling | None, ...]  # of each memory
    # where some spans are stretches of rows: a plan for the other spans, if there are any, and one for each stretch
    slots: "GatherPlan | None" = None
    stretches: tuple["GatherPlan", ...] = ()


def compile_plan(spans: Sequence[Span], memories: Sequence[Memory], *, together: bool = True) -> GatherPlan:
    """Group spans by block, length and step, or without `together` each span alone.

    The columns of the spans have the same dtypes, shapes and fills in all memories.
    """
    first = memories[0]
    home = {name: block.names[0] for block in first.blocks for name in block.names}
    alike: dict[tuple[str, int, int, str], list[Span]] = {}
    for span in spans:
        key = (home[span.column], len(span), span.step, "" if together else span.name)
        alike.setdefault(key, []).append(span)
    native = native_plan(spans, [*alike.values()], memories) if library.LIBRARY else None
    groups = tuple(_group(members, first.columns, native is None) for members in alike.values())
    by_torch = memories if native is None else ()
    draws = draws_of(spans)
    return GatherPlan(
        spans=tuple(spans),
        groups=groups,
        window_bytes=sum(len(span) * first.columns[span.column][:1].nbytes for span in spans),
        filled=any(memory.filling is not None for memory in memories),
        native=native,
        views=tuple(tuple(map(partial(_view, memory, draws), groups, alike.values())) for memory in by_torch),
        fillings=tuple(memory.filling for memory in by_torch),
    )


def with_stretches(slots: GatherPlan | None, stretches: Sequence[GatherPlan]) -> GatherPlan:
    """One plan for spans in slots and for stretches of rows, whose groups come last."""
    parts = [*([] if slots is None else [slots]), *stretches]
    return GatherPlan(
        spans=tuple(span for part in parts for span in part.spans),
        groups=tuple(group for part in parts for group in part.groups),
        window_bytes=sum(part.window_bytes for part in parts),
        filled=True,
        native=None,
        views=(),
        fillings=(),
        slots=slots,
        stretches=tuple(stretches),
    )


def _group(members: list[Span], columns: Mapping[str, torch.Tensor], by_torch: bool) -> SpanGroup:
    first = members[0]
    dtypes = tuple(columns[span.column].dtype for span in members)
    typed = len(set(dtypes)) == 1 and dtypes[0].is_floating_point
    dtype = dtypes[0] if typed else as_integers(columns[first.column][:0]).dtype
    tail = tuple(columns[first.column].shape[1:])
    row, sliced = math.prod(tail), by_torch and 1 < first.step <= _SLICED_STEPS
    slots = _extent(first) if sliced else len(first)
    return SpanGroup(
        names=tuple(span.name for span in members),
        dtypes=dtypes,
        dtype=dtype,
        items=(slots * row,) if sliced or first.step == 1 else (slots, row),
        shape=(slots, *tail),
        slice_step=first.step if sliced else 1,
        plain=not sliced and {*dtypes} == {dtype},
    )


def _extent(span: Span) -> int:
    """The number of slots from the first to the last of a span."""
    return (len(span) - 1) * span.step + 1


def _view(memory: Memory, draws: Sequence[Draw], group: SpanGroup, members: list[Span]) -> View:
    first = members[0]
    block = next(block for block in memory.blocks if first.column in block.names)
    starts = np.array([block.names.index(span.column) * block.stride for span in members])
    items, row = block.items.view(group.dtype), math.prod(group.shape[1:])
    positions = max(0, items.numel() // row - _extent(first) + 1)
    strides = (row, 1) if len(group.items) == 1 else (row, row * first.step, 1)
    offsets = starts + [span.start for span in members]
    patch = (
        None if memory.filling is None else _patch(block.items.view(-1, row), starts, members, memory.filling, draws)
    )
    return View(
        strided=items.as_strided((positions, *group.items), strides),
        offsets=offsets.astype(np.int32 if positions < 1 << 31 else np.int64)[:, None],
        patch=patch,
    )


def _patch(items: torch.Tensor, starts: Int64s, members: list[Span], filling: Filling, draws: Sequence[Draw]) -> Patch:
    """How windows with empty slots are written row by row, including the slots that are sliced away later."""
    extent, step = _extent(members[0]), 1 if members[0].step <= _SLICED_STEPS else members[0].step
    fills = torch.stack([filling.fills[span.column] for span in members])
    firsts = [filling.history + span.start for span in members]
    ranges = tuple(slice(first, first + extent, step) for first in firsts)
    computed = tuple(filling.computed.get(span.column) for span in members)
    numbers = tuple(draw_number(span, draws) for span in members)
    return Patch(items, starts, ranges, numbers, fills[:, None, None, None], computed)


def gather(
    plan: GatherPlan, source: Int32s | None, anchors: Int64s, stretches: Sequence[Stretches] = ()
) -> dict[str, torch.Tensor]:
    """A fresh batch of the windows at the slots `anchors` of the memories `source`, both `(batch,)`."""
    buffers = _fresh(plan, len(anchors))
    (observed,) = select(plan, source, anchors, [buffers], stretches=stretches)
    return as_batch(plan, buffers) | observed


def _fresh(plan: GatherPlan, count: int) -> list[torch.Tensor]:
    try:
        return [torch.empty(group.buffer_shape(count), dtype=group.dtype) for group in plan.groups]
    except (RuntimeError, MemoryError) as error:
        raise no_room_for_batch(count * plan.window_bytes) from error


def select(
    plan: GatherPlan,
    source: Int32s | None,
    anchors: Int64s,
    parts: Sequence[Sequence[torch.Tensor]],
    *,
    stretches: Sequence[Stretches] = (),
    skips: Int64s | None = None,
) -> list[dict[str, torch.Tensor]]:
    """Fill the buffers of parts, in each part one per group, of its `buffer_shape` and dtype.

    Returns `<span>.observed` of each part where slots may be empty: a `(windows, time)` bool tensor per span.

    Args:
        plan: how windows are taken.
        source: the number of the memory of each window, `(windows,)`; `None` if there is one memory.
        anchors: the slots of the windows' anchors, `(windows,)`.
        parts: buffers for as many windows each; several parts only where `plan.native` gathers them.
        stretches: of each plan for stretches, arrays `(windows,)`.
        skips: the slots that the draws of spans leave out, `(draws, windows)`; `None` takes the longest spans.
    """
    if not plan.groups:
        return [{} for _ in parts]
    if plan.native is not None:
        return copy(plan.native, source, anchors, parts, skips)
    (buffers,) = parts
    if plan.stretches:
        return [_select_by_kind(plan, source, anchors, buffers, stretches=stretches, skips=skips)]
    check_threads()
    if source is None:
        return [_select(plan, 0, anchors, buffers, skips)]
    return [_scatter(plan, source, anchors, buffers, skips)]


def _select_by_kind(
    plan: GatherPlan,
    source: Int32s | None,
    anchors: Int64s,
    buffers: Sequence[torch.Tensor],
    *,
    stretches: Sequence[Stretches],
    skips: Int64s | None,
) -> dict[str, torch.Tensor]:
    """Fill the buffers of spans in slots, and then of each stretch of rows."""
    at = 0 if plan.slots is None else len(plan.slots.groups)
    (observed,) = [{}] if plan.slots is None else select(plan.slots, source, anchors, [buffers[:at]], skips=skips)
    for part, rows in zip(plan.stretches, stretches):
        of_part = buffers[at : at + len(part.groups)]
        at += len(part.groups)
        fragments, stops = as_fragments(rows, len(part.spans[0]))
        native = None if part.native is None else with_fragments(part.native, fragments)
        fillings = tuple(replace(filling, fragments=fragments) for filling in part.fillings if filling is not None)
        (seen,) = select(replace(part, native=native, fillings=fillings), source, stops, [of_part])
        distances = [span for span in part.spans if span.is_distance]
        if distances:
            to_distances(distances, as_batch(part, of_part), seen, rows.origin)
        for span in distances:
            del seen[f"{span.name}.observed"]
        observed |= seen
    return observed


def _scatter(
    plan: GatherPlan, source: Int32s, anchors: Int64s, buffers: Sequence[torch.Tensor], skips: Int64s | None
) -> dict[str, torch.Tensor]:
    """Fill the buffers with what is gathered from each memory."""
    lengths = {f"{span.name}.observed": len(span) for span in plan.spans} if plan.filled else {}
    observed = {name: torch.ones(len(anchors), length, dtype=torch.bool) for name, length in lengths.items()}
    for k, which in by_source(source):
        rows, parts = torch.from_numpy(np.arange(len(anchors))[which]), _fresh(plan, len(anchors[which]))
        seen = _select(plan, k, anchors[which], parts, None if skips is None else skips[:, which])
        for group, buffer, part in zip(plan.groups, buffers, parts):
            target, values = (as_integers(tensor).view(len(group.names), -1, *group.shape) for tensor in (buffer, part))
            target.index_copy_(1, rows, values)
        for name, values in seen.items():
            observed[name].index_copy_(0, rows, values)
    return observed


def _select(
    plan: GatherPlan, number: int, anchors: Int64s, buffers: Sequence[torch.Tensor], skips: Int64s | None
) -> dict[str, torch.Tensor]:
    """Fill the buffers with windows of one memory."""
    views, filling = plan.views[number], plan.fillings[number]
    rows, whole = (anchors, None) if filling is None else anchor_rows(filling, anchors)
    if whole is not None and skips is not None:
        whole &= ~skips.any(0)
    if whole is None or whole.any():
        for group, view, buffer in zip(plan.groups, views, buffers):
            positions = torch.from_numpy((rows.astype(view.offsets.dtype) + view.offsets).reshape(-1))
            torch.index_select(view.strided, 0, positions, out=buffer.view(-1, *group.items))
    if filling is None or whole is None:
        return {}
    broken = np.flatnonzero(~whole)
    left_out = None if skips is None else skips[:, broken]
    return _patched(plan.spans, filling, views, anchors, broken, buffers, left_out)


def _patched(  # noqa: PLR0917  all of what `_select` has
    spans: Sequence[Span],
    filling: Filling,
    views: Sequence[View],
    anchors: Int64s,
    broken: Int64s,
    buffers: Sequence[torch.Tensor],
    skips: Int64s | None,
) -> dict[str, torch.Tensor]:
    """Write the windows `broken`, which do not lie in one fragment of rows; the `observed` tensors of all."""
    rows, which = rows_of(filling, anchors[broken]), torch.from_numpy(broken)
    for view, buffer in zip(views, buffers):
        if view.patch is not None and len(which):
            fill_in(view.patch, buffer, rows, which, skips)
            compute_in(view.patch, buffer, rows, anchors[broken] - filling.history, which, skips)
    draws = draws_of(spans)
    alike: dict[tuple[range, Draw | None], torch.Tensor] = {}  # spans over the same slots share one tensor
    for span in spans:
        if span.slots not in alike:
            taken = taken_rows(rows, slots_of(filling, span), skips, draw_number(span, draws))
            alike[span.slots] = torch.ones(len(anchors), len(span), dtype=torch.bool)
            alike[span.slots].index_copy_(0, which, torch.from_numpy(taken >= 0))
    return {f"{span.name}.observed": alike[span.slots] for span in spans}


def as_batch(plan: GatherPlan, buffers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Filled buffers, on any device, as one `(batch, time, ...)` tensor per span, all views of them."""
    (batch,) = as_batches(plan, buffers, {}, 1)
    return batch


def as_batches(
    plan: GatherPlan, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor], steps: int
) -> list[dict[str, torch.Tensor]]:
    """Filled buffers and the tensors `rest`, all of equally many windows, as the batches of some steps.

    Each tensor has a counter of writes of its own; entries that share a tensor in `rest` share one per batch.
    Keep the number of operations low: after a gather, their code is no longer in the CPU caches.
    """
    parts: dict[str, Sequence[torch.Tensor]] = {}
    for group, buffer in zip(plan.groups, buffers):
        spans = len(group.names)
        every = _cut(buffer, spans * steps if group.plain else spans)
        if not group.plain:
            typed = map(partial(_typed, group), every, group.dtypes)
            every = [part for whole in typed for part in _cut(whole, steps)]
        for k, name in enumerate(group.names):
            parts[name] = every[k * steps : (k + 1) * steps]
    if len(plan.groups) > 1:
        parts = {span.name: parts[span.name] for span in plan.spans}
    if rest:
        cut = {id(tensor): _cut(tensor, steps) for tensor in rest.values()}
        parts.update((name, cut[id(tensor)]) for name, tensor in rest.items())
    batches: list[dict[str, torch.Tensor]] = [{} for _ in range(steps)]
    for name, of_steps in parts.items():
        for batch, tensor in zip(batches, of_steps):
            batch[name] = tensor
    return batches


def _cut(tensor: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    # `unsafe_chunk` is safe, because nothing writes into the whole tensor later
    return (tensor,) if count == 1 else tensor.unsafe_chunk(count)


def _typed(group: SpanGroup, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    typed = tensor if tensor.dtype == dtype else tensor.view(dtype)
    return typed[:, :: group.slice_step] if group.slice_step > 1 else typed


def gather_into(plan: GatherPlan, anchors: Int64s, out: Mapping[str, torch.Tensor]) -> None:
    """Write a batch into the caller's tensors, one per span, each `(batch, time, ...)`; no spans share a group."""
    buffers = []
    for group in plan.groups:
        target = _target(out, group.names[0], group.batch_shape(len(anchors)), group.dtypes[0])
        fits = group.slice_step == 1 and _plain_memory(target)
        shape = group.buffer_shape(len(anchors))
        buffers.append(target.view(group.dtype).view(shape) if fits else torch.empty(shape, dtype=group.dtype))
    (observed,) = select(plan, None, anchors, [buffers])
    for buffer in buffers:  # so that autograd notices the writes of the kernel; torch 2.4 takes one at a time
        torch.autograd.graph.increment_version(buffer)
    batch = as_batch(plan, buffers) | observed
    copy_into({name: tensor for name, tensor in batch.items() if not _same_memory(tensor, out.get(name))}, out)


def _plain_memory(tensor: torch.Tensor) -> bool:
    """Whether bytes may be written at the tensor's address. The kernel does not check this."""
    return tensor.is_contiguous() and tensor.device.type == "cpu" and not tensor.requires_grad


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
