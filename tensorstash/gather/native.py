"""Spans and memories as the compiled kernel takes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import as_array
from tensorstash.gather.memory import Filling, Fragments, Memory
from tensorstash.gather.rows import InSlots, Stretches, as_fragments
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.native import kernel

_WORD = (1 << 64) - 1
_ONE = np.zeros(1, np.int64)


def compiled(spans: Sequence[Span], memories: Sequence[Memory]) -> kernel.Compiled:
    """Describe spans to the kernel, in the order of their buffers, and each memory."""
    fills = next((memory.filling.fills for memory in memories if memory.filling is not None), None)
    draws = draws_of(spans)
    return kernel.compile_plan(
        [
            kernel.SlotRange(
                span.start,
                len(span),
                span.step,
                0 if fills is None else int(fills[span.column]) & _WORD,
                draw_number(span, draws),
            )
            for span in spans
        ],
        [source_of([as_array(memory.columns[span.column]) for span in spans], memory.filling) for memory in memories],
        history=max(0, *(-span.start for span in spans)),
        horizon=max(0, *(span.stop for span in spans)),
        apart=spans[0].variates is not None,
    )


def source_of(items: list[NDArray[Any]], filling: Filling | None) -> kernel.Source:
    """A memory, by the columns of the spans and its fragments, for the kernel."""
    if filling is None:
        return kernel.Source(items, None, None)
    fragments = filling.fragments
    if fragments is None:  # those of each call take the place of this one
        fragments, _ = as_fragments(Stretches(_ONE, _ONE, _ONE), filling.history)
    return kernel.Source(items, *_described(fragments))


def as_slots(plan: kernel.Compiled, stretches: Stretches) -> tuple[kernel.Compiled, InSlots]:
    """Stretches as windows in slots, and the plan with their fragments."""
    fragments, anchors = as_fragments(stretches, plan.length)
    return kernel.with_fragments(plan, *_described(fragments)), InSlots(anchors)


def _described(fragments: Fragments) -> tuple[tuple[Any, Any, Any], kernel.Pieces]:
    guide = fragments.guide
    pieces = kernel.pieces(guide.records, guide.table, guide.shift)
    return (fragments.first, fragments.row, fragments.rows), pieces
