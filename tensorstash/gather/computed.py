"""Columns of which the values in empty slots are computed, those of `ts.calendar`: always on the host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.common.records import each_array, some_of
from tensorstash.gather.layout import ObservedLayout, SpanGroup
from tensorstash.gather.memory import Compute, Filling, Memory, by_component
from tensorstash.gather.rows import InSlots, as_tensors, matrix, whole
from tensorstash.gather.span import Span, draw_number, draws_of


@dataclass(frozen=True, slots=True)
class ComputedSpan:
    """A span whose values are computed where a slot is empty."""

    span: Span
    draw: int  # the number of its draw, or -1
    fillings: tuple[Filling | None, ...]  # of each memory
    buffer: int  # the index of the buffer that holds the span
    at: tuple[int, int]  # the number of the span in this buffer, and how many it has
    observed: int  # the index of its `observed` tensor

    def of(self, component: int) -> Compute | None:
        """How the values are computed in one component."""
        filling = self.fillings[component]
        return None if filling is None else filling.computed.get(self.span.column)

    def values(self, compute: Compute, some: InSlots, at: Int64s) -> NDArray[Any]:
        """The values in the slots `at` of the span, each of one of `some` windows, `(n, items)`."""
        values = compute(some.anchors + (self.span.start + at * self.span.step)).numpy()
        return values if some.variates is None else np.take_along_axis(values, some.variates[:, None], 1)


def computed_spans(
    spans: Sequence[Span], layout: Sequence[SpanGroup], observed: ObservedLayout, memories: Sequence[Memory]
) -> tuple[ComputedSpan, ...]:
    """The computed spans of the buffers."""
    fillings, draws = tuple(memory.filling for memory in memories), draws_of(spans)
    return tuple(
        ComputedSpan(
            span, draw_number(span, draws), fillings, buffer, (k, len(group.spans)), observed.slots.index(span.slots)
        )
        for buffer, group in enumerate(layout)
        for k, span in enumerate(group.spans)
        if any(filling is not None and span.column in filling.computed for filling in fillings)
    )


def compute_in(
    computed: ComputedSpan, component: Int32s | None, rows: InSlots, buffer: torch.Tensor, observed: torch.Tensor
) -> None:
    """Write the values of empty slots into the buffer of a batch on the host; in numpy, for forked processes."""
    window, at = np.nonzero(~observed.numpy())
    if not len(window):
        return
    number, spans = computed.at
    target = as_integers(buffer).numpy().reshape(spans, *observed.shape, -1)[number]
    for k, which in by_component(None if component is None else component[window]):
        compute = computed.of(k)
        if compute is not None:
            target[window[which], at[which]] = computed.values(compute, some_of(rows, window[which]), at[which])


class ComputedValues(NamedTuple):
    """The values of empty slots of a span, computed before its batch is gathered on a device."""

    computed: ComputedSpan
    at: torch.Tensor  # (slots,) int64, among the slots of the span in all windows
    values: torch.Tensor  # (slots, items of a row)

    def write(self, buffer: torch.Tensor) -> None:
        """Write them into the buffer that holds the span."""
        number, spans = self.computed.at
        target = as_integers(buffer).view(spans, -1, self.values.shape[1])[number]
        target.index_copy_(0, self.at, self.values)


def computed_values(computed: ComputedSpan, component: Int32s | None, rows: InSlots) -> Iterator[ComputedValues]:
    """The values of the empty slots of all windows, for each component that has some."""
    slots = torch.tensor([*computed.span.slots[0]])
    for k, which in by_component(component):
        compute, filling = computed.of(k), computed.fillings[k]
        if compute is None or filling is None or filling.fragments is None:
            continue
        fragments = as_tensors(filling.fragments, slots.device)
        windows = np.arange(len(rows.anchors))[which]
        tensors = each_array(some_of(rows, which), torch.from_numpy)
        _, inside = whole(tensors, fragments, -computed.span.start, computed.span.stop)
        if inside is not None:
            windows = windows[~inside.numpy()]
        some = some_of(rows, windows)
        found = matrix(each_array(some, torch.from_numpy), fragments, slots, computed.draw)
        window, at = np.nonzero(found.numpy() < 0)
        if len(window):
            values = torch.from_numpy(computed.values(compute, some_of(some, window), at))
            yield ComputedValues(computed, torch.from_numpy(windows[window] * len(slots) + at), values)
