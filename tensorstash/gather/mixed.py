"""Batches of windows from several stashes: by the kernel in one call, else each stash gathers its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.gather.empty import FillPlan
from tensorstash.gather.gather import GatherPlan, gathered
from tensorstash.gather.native import source_of
from tensorstash.gather.span import Span
from tensorstash.native import kernel, library

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class MixPlan:
    """How spans that several stashes have in common are copied from each of them."""

    plans: Sequence[GatherPlan]  # of each stash, whose buffers are alike; of the first one alone with the kernel
    lengths: Mapping[str, int]  # `<span>.observed` and the slots of the span, if any stash has empty ones
    native: kernel.Plan | None  # where the kernel was compiled


def mix_plan(
    spans: Sequence[Span],
    columns: Sequence[Mapping[str, torch.Tensor]],
    fillings: Sequence[FillPlan | None],
    plan_of: Callable[[int], GatherPlan],
) -> MixPlan:
    """The plan for `spans`, which have columns, a filling and a plan in each stash."""
    filled = [one for one in fillings if one is not None]
    lengths = {f"{span.name}.observed": len(span) for span in spans} if filled else {}
    # the kernel cannot compute values for empty slots
    if library.LIBRARY is None or any(one.computed for one in filled):
        return MixPlan([plan_of(k) for k in range(len(columns))], lengths, None)
    first = plan_of(0)
    return MixPlan([first], lengths, _native(spans, first, columns, fillings))


def _native(
    spans: Sequence[Span],
    first: GatherPlan,
    columns: Sequence[Mapping[str, torch.Tensor]],
    fillings: Sequence[FillPlan | None],
) -> kernel.Plan:
    named = {span.name: span for span in spans}
    filling = next((one for one in fillings if one is not None), None)
    described, taken = [], []
    for group in first.groups:
        for name in group.names:
            span = named[name]
            bits = 0 if filling is None else int(filling.fills[span.column]) & _WORD
            # a span that is sliced later has every row in the buffer
            described.append(kernel.Span(span.begin, group.shape[0], 1 if group.slice_step > 1 else span.step, bits))
            taken.append(span.column)
    sources = [
        source_of([as_integers(own[name]).numpy() for name in taken], one) for own, one in zip(columns, fillings)
    ]
    history, horizon = max(0, *(-span.begin for span in spans)), max(0, *(span.end for span in spans))
    return kernel.compile_plan(described, sources, history, horizon)


def select_mixed(
    plan: MixPlan, component: Int32s, anchors: Int64s, buffers: Sequence[Sequence[torch.Tensor]]
) -> list[dict[str, torch.Tensor]]:
    """Fill the buffers of some steps, one per group, with windows of `component` at the slots `anchors`.

    Both are `(steps, batch)`. Returns for each step, if any stash has empty slots, `<span>.observed`: a `(batch, time)`
    bool tensor per span.
    """
    if plan.native is not None:
        return _by_kernel(plan, plan.native, component, anchors, buffers)
    return [_by_torch(plan, *one) for one in zip(component, anchors, buffers)]


def _by_torch(
    plan: MixPlan, component: Int32s, anchors: Int64s, buffers: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
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
    plan: MixPlan,
    native: kernel.Plan,
    component: Int32s,
    anchors: Int64s,
    buffers: Sequence[Sequence[torch.Tensor]],
) -> list[dict[str, torch.Tensor]]:
    groups = plan.plans[0].groups
    out = [[at for group, buffer in zip(groups, own) for at in _parts(buffer, len(group.names))] for own in buffers]
    seen: list[dict[str, torch.Tensor]] = [{} for _ in buffers]
    for own in seen if plan.lengths else ():
        for group in groups:
            for name in group.names:
                own[name] = torch.empty(anchors.shape[1], group.shape[0], dtype=torch.bool)
    asked = np.array([[flags.data_ptr() for flags in own.values()] for own in seen], np.uintp) if plan.lengths else None
    kernel.gather(native, anchors, np.array(out, np.uintp), asked, component)
    steps = {name: group.slice_step for group in groups for name in group.names}
    return [{f"{name}.observed": flags[:, :: steps[name]].contiguous() for name, flags in own.items()} for own in seen]


def _parts(buffer: torch.Tensor, spans: int) -> list[int]:
    """Where the equal parts of a buffer begin."""
    begin, nbytes = buffer.data_ptr(), buffer.nbytes // spans
    return [begin + k * nbytes for k in range(spans)]


def by_component(component: Int32s) -> Iterator[tuple[int, Int64s]]:
    """Each component that occurs, and the indices at which it occurs."""
    order = np.argsort(component.astype(np.uint16), kind="stable")  # by radix; a mix has at most 2**16 components
    edges = np.flatnonzero(np.diff(component[order])) + 1
    for which in np.split(order, edges):
        yield int(component[which[0]]), which
