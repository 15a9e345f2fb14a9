"""Rows to batches: spans are compiled once, then copied by the kernel, or by one `index_select` per strided view.

Why a strided view, as measured: `index_select` along dimension 0 of one is many times faster than an index matrix.
Along a later dimension `index_select` first copies the whole view. Values viewed as integers of their width are exact
for every dtype and never slower. One call for all columns of an item size beats one call per column.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s, as_integers
from tensorstash.common.forks import check_threads
from tensorstash.gather.empty import FillPlan, GroupFill, anchor_rows, compute_in, fill_in, observed, rows_of
from tensorstash.gather.native import NativePlan, copy, native_plan
from tensorstash.gather.span import Span
from tensorstash.native import library
from tensorstash.stash.blocks import Block

_SLICED_STEPS = 4  # up to this step, gathering every row and slicing is faster than a strided gather


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """The spans of one block, length and step: one strided view, one `index_select`."""

    view: torch.Tensor  # (positions, items of one window) or, strided, (positions, slots, items of a row)
    # (spans, 1) from the anchor row of a window to the position of the span in the view; int32 if that fits
    offsets: NDArray[Any]
    names: tuple[str, ...]  # of the spans
    dtypes: tuple[torch.dtype, ...]  # of the spans; the view has the one floating dtype of all, else integers
    shape: tuple[int, ...]  # of one window as it is selected
    slice_step: int  # above 1, the batch takes every n-th of the selected slots
    plain: bool  # whether the buffer is `(batch, time)` of the right dtype already
    patch: GroupFill | None  # where slots may be empty

    def buffer_shape(self, count: int) -> tuple[int, ...]:
        """The shape of the buffer for a batch of `count` windows."""
        return (len(self.names) * count, *self.view.shape[1:])

    def batch_shape(self, count: int) -> tuple[int, ...]:
        """The shape of each span in a batch of `count` windows."""
        return (count, -(-self.shape[0] // self.slice_step), *self.shape[1:])


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How the spans of a window are taken from the blocks."""

    groups: tuple[SpanGroup, ...]
    names: tuple[str, ...]  # of the spans, in the order of the batch
    window_bytes: int  # of one window in a batch
    filling: FillPlan | None  # where slots may be empty
    native: NativePlan | None  # where the kernel was compiled


class BatchIndex(NamedTuple):
    """The positions of the windows of one batch."""

    at: tuple[torch.Tensor, ...]  # in the view of each group
    size: int  # of the batch
    broken: Int64s  # the windows that do not lie in one fragment of rows
    anchors: Int64s  # and the slots of their anchors


@dataclass(frozen=True, slots=True)
class Places:
    """Where the windows of a few steps are."""

    anchors: Int64s  # (steps, batch) the slots of their anchors
    index: list[BatchIndex]  # of each step, where torch gathers


_NONE = np.empty(0, np.int64)


def compile_plan(
    blocks: Sequence[Block],
    columns: Mapping[str, torch.Tensor],
    spans: Sequence[Span],
    filling: FillPlan | None,
    *,
    together: bool = True,
) -> GatherPlan:
    """Group spans by block, length and step, or without `together` each span alone; views share the blocks' memory."""
    home = {name: (block, k) for block in blocks for k, name in enumerate(block.names)}
    alike: dict[tuple[str, int, int, str], list[Span]] = {}
    for span in spans:
        key = (home[span.column][0].names[0], len(span), span.step, "" if together else span.name)
        alike.setdefault(key, []).append(span)
    native = native_plan([*alike.values()], columns, filling) if library.LIBRARY else None
    groups = []
    for members in alike.values():
        block = home[members[0].column][0]
        firsts = np.array([home[span.column][1] * block.stride for span in members])
        row = math.prod(columns[members[0].column].shape[1:])
        patch = None if filling is None else _patch(block.items.view(-1, row), firsts, members, filling)
        sliced = 1 < members[0].step <= _SLICED_STEPS and native is None
        groups.append(_group(block, firsts, members, columns, patch, sliced=sliced))
    nbytes = (len(span) * columns[span.column][:1].nbytes for span in spans)
    return GatherPlan(tuple(groups), tuple(span.name for span in spans), sum(nbytes), filling, native)


def _group(
    block: Block,
    firsts: Int64s,
    members: list[Span],
    columns: Mapping[str, torch.Tensor],
    patch: GroupFill | None,
    *,
    sliced: bool,
) -> SpanGroup:
    first = members[0]
    dtypes = tuple(columns[span.column].dtype for span in members)
    typed = len(set(dtypes)) == 1 and dtypes[0].is_floating_point
    items = block.items.view(dtypes[0]) if typed else block.items
    tail = tuple(columns[first.column].shape[1:])
    row = math.prod(tail)
    extent = (len(first) - 1) * first.step + 1
    places = max(0, items.numel() // row - extent + 1)
    if sliced or first.step == 1:
        view = items.as_strided((places, extent * row), (row, 1))
    else:
        view = items.as_strided((places, len(first), row), (row, row * first.step, 1))
    offsets = firsts + [span.begin for span in members]
    return SpanGroup(
        view=view,
        offsets=offsets.astype(np.int32 if places < 1 << 31 else np.int64)[:, None],
        names=tuple(span.name for span in members),
        dtypes=dtypes,
        shape=(extent if sliced else len(first), *tail),
        slice_step=first.step if sliced else 1,
        plain=items.dtype == dtypes[0] and len(set(dtypes)) == 1 and not tail and first.step == 1,
        patch=patch,
    )


def _patch(items: torch.Tensor, firsts: Int64s, members: list[Span], filling: FillPlan) -> GroupFill:
    """How windows with empty slots are written row by row, including the slots that are sliced away later."""
    extent = (len(members[0]) - 1) * members[0].step + 1
    step = 1 if members[0].step <= _SLICED_STEPS else members[0].step
    begins = [filling.history + span.begin for span in members]
    fills = torch.stack([filling.fills[span.column] for span in members])
    ranges = tuple(slice(begin, begin + extent, step) for begin in begins)
    computed = tuple(filling.computed.get(span.column) for span in members)
    return GroupFill(items, firsts, ranges, fills[:, None, None, None], computed)


def gather(plan: GatherPlan, anchors: Int64s) -> dict[str, torch.Tensor]:
    """A fresh batch of the windows whose anchors are at the slots `anchors`, `(batch,)`."""
    buffers, seen = gathered(plan, anchors)
    return as_batch(plan, buffers) | seen


def gathered(plan: GatherPlan, anchors: Int64s) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The parts of such a batch: a fresh buffer for each group, and the `<span>.observed` tensors."""
    buffers = [group.view.new_empty(group.buffer_shape(len(anchors))) for group in plan.groups]
    (seen,) = select(plan, positions(plan, anchors[None]), range(1), [buffers])
    return buffers, seen


def positions(plan: GatherPlan, anchors: Int64s) -> Places:
    """The positions of the windows with anchors at the slots `anchors`, `(steps, batch)`."""
    return Places(anchors, [] if plan.native else _indices(plan, anchors))


def _indices(plan: GatherPlan, anchors: Int64s) -> list[BatchIndex]:
    rows, broken = anchors, [_NONE] * len(anchors)
    if plan.filling is not None:
        rows, whole = anchor_rows(plan.filling, anchors)
        broken = [np.flatnonzero(~one) for one in whole]
    per_group = []
    for group in plan.groups:
        places = rows.astype(group.offsets.dtype)[:, None] + group.offsets
        per_group.append(torch.from_numpy(places.reshape(len(anchors), -1)).unbind())
    count = anchors.shape[1]
    return [
        BatchIndex(index, count, which, step[which]) for index, which, step in zip(zip(*per_group), broken, anchors)
    ]


def select(
    plan: GatherPlan, places: Places, steps: range, buffers: Sequence[Sequence[torch.Tensor]]
) -> list[dict[str, torch.Tensor]]:
    """Fill the buffers of some steps: each step has one per group, of its `buffer_shape` and the dtype of its view.

    Returns for each step, where slots may be empty, `<span>.observed`: a `(batch, time)` bool tensor per span.
    """
    if plan.native is not None:
        return copy(plan.native, places.anchors[steps.start : steps.stop], buffers)
    check_threads()
    return [_select(plan, places.index[step], own) for step, own in zip(steps, buffers)]


def _select(plan: GatherPlan, places: BatchIndex, buffers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    for group, index, buffer in zip(plan.groups, places.at, buffers):
        if len(places.broken) * len(group.names) < len(index):  # some window lies in one fragment
            torch.index_select(group.view, 0, index, out=buffer)
    if plan.filling is None:
        return {}
    rows, which = rows_of(plan.filling, places.anchors), torch.from_numpy(places.broken)
    for group, buffer in zip(plan.groups, buffers):
        if group.patch is not None and len(which):
            fill_in(group.patch, buffer, rows, which)
            compute_in(group.patch, buffer, rows, places.anchors - plan.filling.history, which)
    return observed(plan.filling, rows, which, places.size)


def as_batch(plan: GatherPlan, buffers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Filled buffers, on any device, as one `(batch, time, ...)` tensor per span, all views of them.

    Keep the number of operations low: after a gather, their code is no longer in the CPU caches.
    """
    batch: dict[str, torch.Tensor] = {}
    for group, buffer in zip(plan.groups, buffers):
        spans = len(group.names)
        # a counter of writes for each column; unsafe would be to write into the buffer itself later, which nobody can
        tensors = buffer.unsafe_chunk(spans) if len(buffer) else (buffer,) * spans
        if not group.plain:
            tensors = tuple(_shaped(tensor, group, dtype) for tensor, dtype in zip(tensors, group.dtypes))
        batch.update(zip(group.names, tensors))
    return batch if len(plan.groups) == 1 else {name: batch[name] for name in plan.names}


def _shaped(tensor: torch.Tensor, group: SpanGroup, dtype: torch.dtype) -> torch.Tensor:
    typed = tensor if tensor.dtype == dtype else tensor.view(dtype)
    shaped = typed.view(len(tensor), *group.shape)
    return shaped[:, :: group.slice_step] if group.slice_step > 1 else shaped


def gather_into(plan: GatherPlan, anchors: Int64s, out: Mapping[str, torch.Tensor]) -> None:
    """Write a batch into the caller's tensors, one per span, each `(batch, time, ...)`; no spans share a group."""
    buffers = []
    for group in plan.groups:
        target = _target(out, group.names[0], group.batch_shape(len(anchors)), group.dtypes[0])
        fits = group.slice_step == 1 and _plain_memory(target)
        shape = group.buffer_shape(len(anchors))
        buffers.append(target.view(group.view.dtype).view(shape) if fits else group.view.new_empty(shape))
    (seen,) = select(plan, positions(plan, anchors[None]), range(1), [buffers])
    for buffer in buffers:  # so that autograd notices the writes of the kernel; torch 2.4 takes one at a time
        torch.autograd.graph.increment_version(buffer)
    batch = as_batch(plan, buffers) | seen
    copy_into({name: tensor for name, tensor in batch.items() if not _same_memory(tensor, out.get(name))}, out)


def _plain_memory(tensor: torch.Tensor) -> bool:
    """Whether bytes may be written at the tensor's address. The kernel does not check this."""
    return tensor.is_contiguous() and tensor.device.type == "cpu" and not tensor.requires_grad


def _same_memory(one: torch.Tensor, two: torch.Tensor | None) -> bool:
    return two is not None and one.data_ptr() == two.data_ptr()


def copy_into(batch: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
    """Write tensors into the caller's of the same names."""
    for name, tensor in batch.items():
        _target(out, name, tuple(tensor.shape), tensor.dtype).copy_(tensor)


def _target(out: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    target = out.get(name)
    if target is None or target.shape != shape or target.dtype != dtype:
        found = "nothing" if target is None else f"{tuple(target.shape)} {target.dtype}"
        raise ValueError(f"out= has a {shape} {dtype} tensor for {name!r}; got {found}.")
    return target


def static_values(static: Mapping[str, torch.Tensor], entities: torch.Tensor) -> dict[str, torch.Tensor]:
    """The values of static columns for entities `(batch,)`; by numpy, because torch's threads do not survive a fork."""
    index = entities.numpy()
    taken = {name: as_integers(tensor).numpy().take(index, 0) for name, tensor in static.items()}
    return {name: torch.from_numpy(values).view(static[name].dtype) for name, values in taken.items()}
