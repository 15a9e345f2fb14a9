"""Batches by the compiled kernel, on the host: one call for all spans of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, as_array
from tensorstash.gather.layout import Buffers, ObservedLayout, SpanGroup
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import Picked, Rows, Stretches, as_fragments, count_of
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.native import kernel
from tensorstash.native.guide import guide
from tensorstash.native.library import SpanStruct

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KernelGather:
    """How the kernel takes the spans of one kind of rows, in the order of their buffers, from one memory or several."""

    plan: kernel.KernelPlan
    starts: tuple[tuple[int, int], ...]  # of each span, its buffer and where it begins there, in bytes a window
    observing: tuple[int, ...]  # of each `observed` tensor, the span with which the kernel writes it

    def fill(self, to: Buffers, rows: Rows, component: Int32s | None) -> None:
        """Fill the buffers of a batch on the host."""
        plan, count, threads = self.plan, count_of(rows), torch.get_num_threads()
        begins = [buffer.data_ptr() for buffer in to.values]
        out = [begins[buffer] + start * count for buffer, start in self.starts]
        observed = [0] * len(out)
        for span, tensor in zip(self.observing, to.observed):
            observed[span] = tensor.data_ptr()
        if isinstance(rows, Picked):
            kernel.take(plan, rows.rows, out, observed, component, threads)
            return
        skips = None
        if isinstance(rows, Stretches):
            fragments, pieces, anchors = as_fragments(rows, plan.struct.history + plan.struct.horizon)
            plan = kernel.with_fragments(plan, fragments, pieces)
        else:
            anchors, skips = rows.anchors, None if rows.skips is None else np.ascontiguousarray(rows.skips.T)
            if plan.first is not None:
                first = plan.first[0] if component is None else plan.first[component]
                component = first + rows.variates.astype(np.int32)
        kernel.gather(plan, anchors, out, observed if to.observed else None, component, skips, threads)


def kernel_gather(groups: Sequence[SpanGroup], observed: ObservedLayout, memories: Sequence[Memory]) -> KernelGather:
    """How spans are gathered into these buffers."""
    spans = [span for group in groups for span in group.spans]
    slots, draws = [span.slots for span in spans], draws_of(spans)
    fills = next((memory.filling.fills for memory in memories if memory.filling is not None), None)
    structs = [
        SpanStruct(
            start=span.start,
            length=len(span),
            step=span.step,
            draw=draw_number(span, draws),
            empty=0 if fills is None else int(fills[span.column]) & _WORD,
        )
        for span in spans
    ]
    return KernelGather(
        plan=kernel.compile_plan(
            structs,
            [_source(spans, memory) for memory in memories],
            history=max(0, *(-span.start for span in spans)),
            horizon=max(0, *(span.stop for span in spans)),
            by_item=spans[0].variates is not None,
        ),
        starts=tuple((k, j * group.span_bytes) for k, group in enumerate(groups) for j in range(len(group.spans))),
        observing=tuple(map(slots.index, observed.slots)),
    )


def _source(spans: Sequence[Span], memory: Memory) -> kernel.Source:
    items, filling = [as_array(memory.columns[span.column]) for span in spans], memory.filling
    if filling is None or filling.fragments is None:
        return kernel.Source(items)
    ends = np.append(filling.fragments.first[1:], filling.slots)
    return kernel.Source(items, filling.fragments, guide(ends[:, None]))
