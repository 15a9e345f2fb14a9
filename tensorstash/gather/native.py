"""The same batches by the compiled kernel: the spans of a few steps in one call, on one thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s, as_integers
from tensorstash.gather.empty import Compute, FillPlan
from tensorstash.gather.span import Span
from tensorstash.native import kernel

Addresses = NDArray[np.uintp]
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Flags:
    """The `<span>.observed` tensors of batches; spans over the same slots share one tensor."""

    lengths: tuple[int, ...]  # of each of these tensors
    written: tuple[int, ...]  # for each, the one span by which the kernel writes it
    names: Mapping[str, int]  # `<span>.observed`, and which of the tensors it is


@dataclass(frozen=True, slots=True)
class Computed:
    """A span whose values are computed where a slot is empty."""

    span: Span
    compute: Compute
    buffer: int  # the index of the buffer that holds the span
    at: tuple[int, int]  # the place of the span in this buffer, and the number of spans there


@dataclass(frozen=True, slots=True)
class NativePlan:
    """How the spans of a window are copied, and where they go in the buffers of a batch."""

    plan: kernel.Plan
    buffer: NDArray[np.intp]  # (spans,) the buffer that holds each
    begin: Addresses  # (spans,) where it begins there, in bytes per window of the batch
    flags: Flags | None  # where slots may be empty
    computed: tuple[Computed, ...]


def native_plan(
    groups: Sequence[Sequence[Span]], columns: Mapping[str, torch.Tensor], filling: FillPlan | None
) -> NativePlan:
    """Describe the spans of each buffer to the kernel; `columns` holds their memory."""
    spans = [span for members in groups for span in members]
    items = [as_integers(columns[span.column]).numpy() for span in spans]
    empty = [0 if filling is None else int(filling.fills[span.column]) & _WORD for span in spans]
    begins: list[int] = []
    for members in groups:
        nbytes = [len(span) * columns[span.column][:1].nbytes for span in members]
        begins += np.cumsum([0, *nbytes[:-1]]).tolist()
    plan = kernel.compile_plan(
        [kernel.Span(span.begin, len(span), span.step, bits) for span, bits in zip(spans, empty)],
        [source_of(items, filling)],
        history=max(0, *(-span.begin for span in spans)),
        horizon=max(0, *(span.end for span in spans)),
    )
    buffer = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
    return NativePlan(plan, buffer, np.array(begins, np.uintp), _flags(spans, filling), _computed(groups, filling))


def source_of(items: list[NDArray[Any]], filling: FillPlan | None) -> kernel.Source:
    """The columns of a stash, one array of integers per span, and where its fragments are, as the kernel takes them."""
    if filling is None:
        return kernel.Source(items, None, None)
    own = filling.fragments
    pieces = kernel.pieces(own.guide.records, own.guide.table, own.guide.shift)
    return kernel.Source(items, (own.first, own.row, own.rows), pieces)


def _flags(spans: Sequence[Span], filling: FillPlan | None) -> Flags | None:
    if filling is None:
        return None
    alike: dict[tuple[int, int, int], list[int]] = {}
    for k, span in enumerate(spans):
        alike.setdefault((span.begin, span.end, span.step), []).append(k)
    slots, written = [*alike], tuple(members[0] for members in alike.values())
    names = {f"{span.name}.observed": slots.index((span.begin, span.end, span.step)) for span in filling.spans}
    return Flags(tuple(len(spans[k]) for k in written), written, names)


def _computed(groups: Sequence[Sequence[Span]], filling: FillPlan | None) -> tuple[Computed, ...]:
    functions: Mapping[str, Compute] = {} if filling is None else filling.computed
    return tuple(
        Computed(span, functions[span.column], buffer, (k, len(members)))
        for buffer, members in enumerate(groups)
        for k, span in enumerate(members)
        if span.column in functions
    )


def copy(
    native: NativePlan, anchors: Int64s, buffers: Sequence[Sequence[torch.Tensor]]
) -> list[dict[str, torch.Tensor]]:
    """Fill the buffers of each step with windows whose anchors are at the slots `anchors`, `(steps, batch)`.

    If slots may be empty, returns the `<span>.observed` tensors of each step.
    """
    steps, count = anchors.shape
    bases = np.array([[buffer.data_ptr() for buffer in own] for own in buffers], np.uintp)
    out = bases.take(native.buffer, 1) + native.begin * np.uintp(count)
    if native.flags is None:
        kernel.gather(native.plan, anchors, out)
        return [{} for _ in range(steps)]
    observed, seen = np.zeros_like(out), []
    for own in observed:
        tensors = [torch.empty(count, length, dtype=torch.bool) for length in native.flags.lengths]
        own[[*native.flags.written]] = [tensor.data_ptr() for tensor in tensors]
        seen.append({name: tensors[k] for name, k in native.flags.names.items()})
    kernel.gather(native.plan, anchors, out, observed)
    for one in native.computed:
        for step, own, flags in zip(anchors, buffers, seen):
            _compute_in(one, step, own[one.buffer], flags[f"{one.span.name}.observed"])
    return seen


def _compute_in(one: Computed, anchors: Int64s, buffer: torch.Tensor, seen: torch.Tensor) -> None:
    """Write computed values into the empty slots of a batch; in numpy, for forked processes."""
    window, at = np.nonzero(~seen.numpy())
    if not len(window):
        return
    values = one.compute(anchors[window] + (one.span.begin + at * one.span.step)).numpy()
    number, spans = one.at
    target = as_integers(buffer).numpy().reshape(spans, *seen.shape, -1)
    target[number, window, at] = values
