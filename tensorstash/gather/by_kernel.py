"""Spans and memories as the compiled kernel takes them."""

from collections.abc import Sequence

import numpy as np

from tensorstash.common.dtypes import as_array
from tensorstash.gather.memory import Memory
from tensorstash.gather.rows import InSlots, Stretches, as_fragments
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.native import kernel
from tensorstash.native.guide import guide
from tensorstash.native.library import SpanStruct

_WORD = (1 << 64) - 1


def kernel_plan(spans: Sequence[Span], memories: Sequence[Memory]) -> kernel.KernelPlan:
    """Describe spans to the kernel, in the order of their buffers, and each memory."""
    fills = next((memory.filling.fills for memory in memories if memory.filling is not None), None)
    draws = draws_of(spans)
    return kernel.compile_plan(
        [
            SpanStruct(
                start=span.start,
                length=len(span),
                step=span.step,
                draw=draw_number(span, draws),
                empty=0 if fills is None else int(fills[span.column]) & _WORD,
            )
            for span in spans
        ],
        [_source(spans, memory) for memory in memories],
        history=max(0, *(-span.start for span in spans)),
        horizon=max(0, *(span.stop for span in spans)),
        by_item=spans[0].variates is not None,
    )


def _source(spans: Sequence[Span], memory: Memory) -> kernel.Source:
    items, filling = [as_array(memory.columns[span.column]) for span in spans], memory.filling
    if filling is None or filling.fragments is None:
        return kernel.Source(items)
    ends = np.append(filling.fragments.first[1:], filling.slots)
    return kernel.Source(items, filling.fragments, guide(ends[:, None]))


def as_slots(plan: kernel.KernelPlan, stretches: Stretches) -> tuple[kernel.KernelPlan, InSlots]:
    """Stretches as windows in slots, and the plan with their fragments."""
    fragments, pieces, anchors = as_fragments(stretches, plan.struct.history + plan.struct.horizon)
    return kernel.with_fragments(plan, fragments, pieces), InSlots(anchors)
