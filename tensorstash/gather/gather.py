"""Rows to batches: spans are compiled once, and then filled by one of two executors.

The kernel gathers on the host, in one call for many windows. Operations of torch gather where it was not compiled, and
on devices. Both fill the same buffers: one call for all columns of an item size costs less than one per column.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s
from tensorstash.gather import by_torch
from tensorstash.gather.by_kernel import as_slots, kernel_plan
from tensorstash.gather.by_torch import Sources, TorchPlan, torch_plan
from tensorstash.gather.computed import ComputedSpan, ComputedValues, compute_in, computed_spans
from tensorstash.gather.layout import Batch, Flags, SpanGroup, as_batch, flags_of, span_groups
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots, Picked, Rows, Stretches, count_of
from tensorstash.gather.span import Span
from tensorstash.native import kernel, library
from tensorstash.segments.limits import no_room_for_batch


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How spans that share one kind of rows, those in slots or those over one stretch, are taken from memories."""

    spans: tuple[Span, ...]
    groups: tuple[SpanGroup, ...]
    flags: Flags | None  # where slots may be empty
    executor: kernel.KernelPlan | TorchPlan
    places: tuple[tuple[int, int], ...]  # of each span of the groups, its buffer and where it begins, in bytes a window
    flagging: tuple[int, ...]  # of each tensor of flags, the one of these spans by which the kernel writes it
    computed: tuple[ComputedSpan, ...]
    device: torch.device  # of the columns
    window_bytes: int  # of one window in a batch


def compile_plan(
    spans: Sequence[Span], memories: Sequence[Memory], *, together: bool = True, by_kernel: bool = True
) -> GatherPlan:
    """The plan for spans, whose columns have the same dtypes, shapes and fills in all their memories.

    Args:
        spans: in slots, or over one stretch.
        memories: what they are gathered from.
        together: spans of one item size, length and step share a buffer; else each has its own.
        by_kernel: the kernel gathers if it was compiled; else torch does, which any device can.
    """
    first = memories[0]
    homes = {span.name: _home(span, first.columns[span.column]) if together else span.name for span in spans}
    groups = span_groups(spans, first.columns, homes)
    flags = flags_of(spans) if any(memory.filling is not None for memory in memories) else None
    in_groups = [span for group in groups for span in group.spans]
    nbytes = [math.prod(group.shape) * group.dtype.itemsize for group in groups]  # of a window of each of their spans
    slots = [span.slots for span in in_groups]
    is_native = by_kernel and library.LIBRARY is not None
    return GatherPlan(
        spans=tuple(spans),
        groups=tuple(groups),
        flags=flags,
        executor=kernel_plan(in_groups, memories) if is_native else torch_plan(spans, groups, memories),
        places=tuple((k, number * nbytes[k]) for k, group in enumerate(groups) for number in range(len(group.spans))),
        flagging=() if flags is None else tuple(map(slots.index, flags.slots)),
        computed=computed_spans(spans, groups, flags, memories) if flags else (),
        device=first.columns[spans[0].column].device,
        window_bytes=sum(len(group.spans) * each for group, each in zip(groups, nbytes)),
    )


def _home(span: Span, column: torch.Tensor) -> str | int:
    """What is equal for spans that may share a buffer: the size of their items, if a row has one."""
    return span.column if column.ndim > 1 or span.distance else column.itemsize


def groups_of(plans: Sequence[GatherPlan]) -> tuple[SpanGroup, ...]:
    """Those of all plans, one after the other: a batch has a buffer for each."""
    return tuple(group for plan in plans for group in plan.groups)


def names_of(plans: Sequence[GatherPlan]) -> tuple[str, ...]:
    """The names of all spans, in the order of a batch."""
    return tuple(span.name for plan in plans for span in plan.spans)


def gather(
    plans: Sequence[GatherPlan],
    source: Int32s | Sources | None,
    rows: Sequence[Rows],
    computed: Sequence[ComputedValues] | None = None,
) -> Batch:
    """A fresh batch of windows, where the columns are; see `gather_into`."""
    count = count_of(rows[0]) if rows else 0
    try:
        buffers = [
            torch.empty(group.buffer_shape(count), dtype=group.dtype, device=plan.device)
            for plan in plans
            for group in plan.groups
        ]
    except (RuntimeError, MemoryError) as error:
        raise no_room_for_batch(count * sum(plan.window_bytes for plan in plans)) from error
    flags = gather_into(buffers, plans, source, rows, computed)
    return as_batch(groups_of(plans), names_of(plans), buffers) | flags


def gather_into(
    buffers: Sequence[torch.Tensor],
    plans: Sequence[GatherPlan],
    source: Int32s | Sources | None,
    rows: Sequence[Rows],
    computed: Sequence[ComputedValues] | None = None,
) -> Batch:
    """Fill buffers, where the columns are.

    Returns `<span>.observed` where slots may be empty: a `(windows, time)` bool tensor per span.

    Args:
        buffers: one per group, of its `buffer_shape` and dtype.
        plans: how windows are taken, for each kind of rows.
        source: the number of the memory of each window, `(windows,)`; `None` if there is one memory. For rows
            on a device `Sources`.
        rows: of each plan, the rows of all windows.
        computed: for rows on a device, the values of empty slots that the host has computed.
    """
    flags: Batch = {}
    left = iter(buffers)
    for plan, of_plan in zip(plans, rows):
        own = [*islice(left, len(plan.groups))]
        observed = [] if plan.flags is None else plan.flags.empty(count_of(of_plan), plan.device)
        if isinstance(plan.executor, TorchPlan):
            by_torch.fill(plan.executor, source, of_plan, own, observed)
        else:
            _fill_by_kernel(plan, plan.executor, source, of_plan, own, observed)
        if not isinstance(of_plan, InSlots):
            for group, buffer in zip(plan.groups, own):
                if group.spans[0].distance:
                    _to_distances(group, buffer, of_plan.origin, observed[0])
        elif computed is not None:  # those of the host; one plan of a call has slots, so they are written once
            for values in computed:
                values.write(own[values.computed.buffer])
        else:
            for one in plan.computed:
                compute_in(one, source, of_plan, own[one.buffer], observed[one.flags])  # type: ignore[arg-type]
        if plan.flags is not None:
            flags.update(plan.flags.named(observed))
    return flags


def _fill_by_kernel(  # noqa: PLR0917  as `gather_into`
    plan: GatherPlan,
    how: kernel.KernelPlan,
    source: Any,
    rows: Rows,
    buffers: Sequence[torch.Tensor],
    observed: Sequence[torch.Tensor],
) -> None:
    """Fill the buffers and the flags, or no flags if no slot can be empty."""
    count, threads = count_of(rows), torch.get_num_threads()
    begins = [buffer.data_ptr() for buffer in buffers]
    out = [begins[buffer] + start * count for buffer, start in plan.places]
    addresses = [0] * len(out) if observed or isinstance(rows, Picked) else None
    for k, tensor in zip(plan.flagging, observed):
        addresses[k] = tensor.data_ptr()  # type: ignore[index]
    if isinstance(rows, Picked):
        kernel.take(how, rows.rows, out, addresses or [], source, threads)
        return
    if isinstance(rows, Stretches):
        how, rows = as_slots(how, rows)
    elif how.first is not None:
        source = (how.first[0] if source is None else how.first[source]) + rows.variates.astype(np.int32)
    skips = None if rows.skips is None else np.ascontiguousarray(rows.skips.T)
    kernel.gather(how, rows.anchors, out, addresses, source, skips, threads)


def _to_distances(group: SpanGroup, buffer: torch.Tensor, origin: Any, observed: Any) -> None:
    """Subtract the values of a group, `(spans * windows, time)`, from the origins of their windows, in place.

    An empty slot becomes 0. On the host in numpy, for forked processes.
    """
    values: Any = buffer
    if isinstance(origin, np.ndarray):
        values, observed = buffer.numpy(), observed.numpy()
    by_span = values.reshape(len(group.spans), *observed.shape)
    by_span[:] = (origin[:, None] - by_span * group.spans[0].distance) * observed
