"""Batches of windows from several stashes: by the kernel in one call, else each stash gathers its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.gather.gather import GatherPlan, gathered
from tensorstash.gather.native import source_of
from tensorstash.gather.span import Span
from tensorstash.native import kernel, library

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class MixPlan:
    """How spans that several stashes have in common are copied from each of them."""

    plans: Sequence[GatherPlan]  # of each stash; their buffers are alike
    lengths: Mapping[str, int]  # `<span>.observed` and the slots of the span, if any stash has empty ones
    native: kernel.Plan | None  # where the kernel was compiled


def mix_plan(
    spans: Sequence[Span], plans: Sequence[GatherPlan], columns: Sequence[Mapping[str, torch.Tensor]]
) -> MixPlan:
    """The plan for `spans`, which have a plan and columns in each stash."""
    filled = any(plan.filling for plan in plans)
    lengths = {f"{span.name}.observed": len(span) for span in spans} if filled else {}
    # the kernel cannot compute values for empty slots
    plain = not any(plan.filling and plan.filling.computed for plan in plans)
    return MixPlan(plans, lengths, _native(spans, plans, columns) if library.LIBRARY and plain else None)


def _native(
    spans: Sequence[Span], plans: Sequence[GatherPlan], columns: Sequence[Mapping[str, torch.Tensor]]
) -> kernel.Plan:
    named = {span.name: span for span in spans}
    filling = next((plan.filling for plan in plans if plan.filling), None)
    described, taken = [], []
    for group in plans[0].groups:
        for name in group.names:
            span = named[name]
            bits = 0 if filling is None else int(filling.fills[span.column]) & _WORD
            # a span that is sliced later has every row in the buffer
            described.append(kernel.Span(span.begin, group.shape[0], 1 if group.slice_step > 1 else span.step, bits))
            taken.append(span.column)
    sources = [
        source_of([as_integers(own[name]).numpy() for name in taken], plan.filling) for own, plan in zip(columns, plans)
    ]
    history, horizon = max(0, *(-span.begin for span in spans)), max(0, *(span.end for span in spans))
    return kernel.compile_plan(described, sources, history, horizon)


def select_mixed(
    plan: MixPlan, component: Int32s, anchors: Int64s, buffers: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Fill one buffer per group with the windows of `component` at the slots `anchors`, `(batch,)` each.

    If any stash has empty slots, returns `<span>.observed`: a `(batch, time)` bool tensor per span.
    """
    if plan.native is not None:
        return _by_kernel(plan, plan.native, component, anchors[None], buffers)
    seen = {name: torch.ones(len(anchors), length, dtype=torch.bool) for name, length in plan.lengths.items()}
    for k, which in by_component(component):
        rows = torch.from_numpy(which)
        own, own_seen = gathered(plan.plans[k], anchors[which])
        for buffer, part, group in zip(buffers, own, plan.plans[0].groups):
            spans = len(group.names)
            target = as_integers(buffer).view(spans, len(anchors), -1)
            target.index_copy_(1, rows, as_integers(part).view(spans, len(which), -1))
        for name, values in own_seen.items():
            seen[name].index_copy_(0, rows, values)
    return seen


def _by_kernel(
    plan: MixPlan, native: kernel.Plan, component: Int32s, anchors: Int64s, buffers: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    out: list[int] = []
    seen: dict[str, torch.Tensor] = {}
    for group, buffer in zip(plan.plans[0].groups, buffers):
        nbytes = buffer.nbytes // len(group.names)
        out += [buffer.data_ptr() + k * nbytes for k in range(len(group.names))]
        for name in group.names if plan.lengths else ():
            seen[name] = torch.empty(len(component), group.shape[0], dtype=torch.bool)
    asked = np.array([[flags.data_ptr() for flags in seen.values()]], np.uintp) if seen else None
    kernel.gather(native, anchors, np.array([out], np.uintp), asked, component)
    steps = {name: group.slice_step for group in plan.plans[0].groups for name in group.names}
    return {f"{name}.observed": flags[:, :: steps[name]].contiguous() for name, flags in seen.items()}


def by_component(component: Int32s) -> Iterator[tuple[int, Int64s]]:
    """Each component that occurs, and the indices at which it occurs."""
    order = np.argsort(component, kind="stable")
    edges = np.flatnonzero(np.diff(component[order])) + 1
    for which in np.split(order, edges):
        yield int(component[which[0]]), which
