"""Rows to batches: spans are compiled once, and then filled by one of two executors.

The kernel gathers on the host, in one call for many windows. Operations of torch gather where it was not compiled, and
on devices. Both fill the same buffers: one call for all columns of an item size costs less than one per column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s
from tensorstash.gather.by_kernel import KernelGather, kernel_gather
from tensorstash.gather.by_torch import ByComponent, TorchPlan, fill_by_torch, torch_plan
from tensorstash.gather.computed import ComputedSpan, ComputedValues, compute_in, computed_spans
from tensorstash.gather.layout import Batch, Buffers, ObservedLayout, SpanGroup, as_batch, observed_layout, span_groups
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots, Rows, count_of
from tensorstash.gather.span import Span
from tensorstash.native import library
from tensorstash.segments.limits import no_room_for_batch


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How spans that share one kind of rows, those in slots or those over one stretch, are taken from memories."""

    spans: tuple[Span, ...]
    groups: tuple[SpanGroup, ...]
    observed: ObservedLayout
    executor: KernelGather | TorchPlan
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
    groups = span_groups(spans, first.columns, together=together)
    may_be_empty = any(memory.filling is not None for memory in memories)
    observed = observed_layout(spans if may_be_empty else ())
    is_native = by_kernel and library.LIBRARY is not None
    return GatherPlan(
        spans=tuple(spans),
        groups=groups,
        observed=observed,
        executor=kernel_gather(groups, observed, memories) if is_native else torch_plan(spans, groups, memories),
        computed=computed_spans(spans, groups, observed, memories),
        device=first.columns[spans[0].column].device,
        window_bytes=sum(len(group.spans) * group.span_bytes for group in groups),
    )


def groups_of(plans: Sequence[GatherPlan]) -> tuple[SpanGroup, ...]:
    """Those of all plans, one after the other: a batch has a buffer for each."""
    return tuple(group for plan in plans for group in plan.groups)


def names_of(plans: Sequence[GatherPlan]) -> tuple[str, ...]:
    """The names of all spans, in the order of a batch."""
    return tuple(span.name for plan in plans for span in plan.spans)


def gather(plans: Sequence[GatherPlan], rows: Sequence[Rows], component: Int32s | None) -> Batch:
    """A fresh batch of windows on the host; see `gather_into`."""
    buffers = _fresh(plans, rows)
    observed = gather_into(buffers, plans, rows, component)
    return as_batch(groups_of(plans), names_of(plans), buffers) | observed


def gather_into(
    buffers: Sequence[torch.Tensor], plans: Sequence[GatherPlan], rows: Sequence[Rows], component: Int32s | None
) -> Batch:
    """Fill buffers on the host.

    Returns `<span>.observed` where slots may be empty: a `(windows, time)` bool tensor per span.

    Args:
        buffers: one per group, of its `buffer_shape` and dtype.
        plans: how windows are taken, for each kind of rows.
        rows: of each plan, the rows of all windows.
        component: the number of the memory of each window, `(windows,)`; `None` if there is one memory.
    """
    observed: Batch = {}
    for plan, of_plan, to in _with_buffers(plans, rows, buffers):
        plan.executor.fill(to, of_plan, component)
        if isinstance(of_plan, InSlots):
            for one in plan.computed:
                compute_in(one, component, of_plan, to.values[one.buffer], to.observed[one.observed])
        else:
            _to_distances(plan, to, of_plan.origin)
        observed.update(plan.observed.named(to.observed))
    return observed


def gather_on_device(
    plans: Sequence[GatherPlan], rows: Sequence[Rows], components: ByComponent, computed: Sequence[ComputedValues]
) -> Batch:
    """A fresh batch of windows on the device of the columns, from rows that lie there.

    `components` are those that occur, and `computed` the values of empty slots that the host has computed.
    """
    buffers, observed = _fresh(plans, rows), Batch()
    for plan, of_plan, to in _with_buffers(plans, rows, buffers):
        fill_by_torch(plan.executor, to, of_plan, components)  # type: ignore[arg-type]  # compiled with `by_kernel=False`
        if isinstance(of_plan, InSlots):  # one plan of a call has slots, so these are written once
            for values in computed:
                values.write(to.values[values.computed.buffer])
        else:
            _to_distances(plan, to, of_plan.origin)
        observed.update(plan.observed.named(to.observed))
    return as_batch(groups_of(plans), names_of(plans), buffers) | observed


def _fresh(plans: Sequence[GatherPlan], rows: Sequence[Rows]) -> list[torch.Tensor]:
    """The buffers of a batch."""
    count = count_of(rows[0]) if rows else 0
    try:
        return [
            torch.empty(group.buffer_shape(count), dtype=group.dtype, device=plan.device)
            for plan in plans
            for group in plan.groups
        ]
    except (RuntimeError, MemoryError) as error:
        raise no_room_for_batch(count * sum(plan.window_bytes for plan in plans)) from error


def _with_buffers(
    plans: Sequence[GatherPlan], rows: Sequence[Rows], buffers: Sequence[torch.Tensor]
) -> Iterator[tuple[GatherPlan, Rows, Buffers]]:
    """Each plan with its rows and what it fills: its own of all buffers, and new `observed` tensors."""
    left = iter(buffers)
    for plan, of_plan in zip(plans, rows):
        observed = plan.observed.empty(count_of(of_plan), plan.device)
        yield plan, of_plan, Buffers([*islice(left, len(plan.groups))], observed)


def _to_distances(plan: GatherPlan, to: Buffers, origin: Any) -> None:
    """Subtract the values of spans that hold distances from the origins of their windows, in place.

    An empty slot becomes 0. On the host in numpy, for forked processes.
    """
    for group, buffer in zip(plan.groups, to.values):
        if distance := group.spans[0].distance:
            values: Any = buffer
            observed: Any = to.observed[0]
            if isinstance(origin, np.ndarray):
                values, observed = buffer.numpy(), observed.numpy()
            by_span = values.reshape(len(group.spans), *observed.shape)
            by_span[:] = (origin[:, None] - by_span * distance) * observed
