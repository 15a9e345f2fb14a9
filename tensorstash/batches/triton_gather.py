"""The gather of `on_device.py` as one Triton kernel per span, which needs no index of every row.

`by_torch` writes and reads eight bytes of index for each row of a window; where slots are rows, the kernel reads eight
bytes for each window.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tensorstash.batches.devices import module_of
from tensorstash.batches.on_device import DevicePlan, DeviceSpan, Gathered, rows_of

try:
    import triton
    import triton.language as tl
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

_BLOCK = 1024  # items that one program copies

if INSTALLED:

    @triton.jit  # type: ignore[untyped-decorator]
    def _copy(  # noqa: PLR0917  a kernel takes its arguments by position
        items: Any,
        rows: Any,
        fill: Any,
        out: Any,
        begin: Any,
        step: Any,
        time: Any,
        row_items: tl.constexpr,
        by_slot: tl.constexpr,
        block: tl.constexpr,
    ) -> None:
        """One block of one window: `rows` holds the row of each slot, -1 if it is empty, or else of each anchor."""
        window = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * block + tl.arange(0, block)
        inside = at < time * row_items
        slot, item = at // row_items, at % row_items
        if by_slot:
            row = tl.load(rows + window * time + slot, mask=inside, other=-1)
        else:
            row = tl.load(rows + window) + begin + slot * step
        there = inside & (row >= 0)
        empty = tl.load(fill)
        values = tl.load(items + row * row_items + item, mask=there, other=0)
        tl.store(out + window * time * row_items + at, tl.where(there, values, empty), mask=inside)


def by_triton(plan: DevicePlan, anchors: torch.Tensor) -> Gathered:
    """The windows with anchors at these slots."""
    if plan.fragments is None:
        return Gathered([_span(plan, span, anchors, by_slot=False) for span in plan.spans], None)
    rows = rows_of(plan, anchors)
    values = [_span(plan, span, rows[span.slots], by_slot=True) for span in plan.spans]
    return Gathered(values, [some >= 0 for some in rows])


def _span(plan: DevicePlan, span: DeviceSpan, rows: torch.Tensor, *, by_slot: bool) -> torch.Tensor:
    slots, row_items = plan.slots[span.slots], span.items.shape[1]
    out = span.items.new_empty(len(rows), len(slots), row_items)
    items = len(slots) * row_items
    block = min(_BLOCK, triton.next_power_of_2(items))
    with _current(out.device):
        _copy[len(rows), triton.cdiv(items, block)](
            span.items, rows, span.fill, out, slots.start, slots.step, len(slots), row_items, by_slot, block
        )
    return out


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Make a device the current one of the thread, where Triton launches its kernels."""
    return nullcontext() if device.type == "cpu" else module_of(device).device(device)
