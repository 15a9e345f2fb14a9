"""Spans of `ts.each` gathered from packs in the memory of a device, with operations of torch that every device has.

The host computes which rows a batch has. They are gathered pack by pack, and then put in their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.gather.rows import FragmentTensors, InSlots
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.gather.variates import VariatePlan, rows_of
from tensorstash.native.permutation import Uint64s

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class DeviceVariates:
    """How spans of the same `ts.each` are gathered on a device."""

    plan: VariatePlan
    packs: list[list[torch.Tensor]]  # of each memory and pack, (rows * columns,) integers of its width
    fragments: list[FragmentTensors | None]  # of each memory
    fill: torch.Tensor | None  # (1,) what an empty slot holds; `None`: no slot can be empty
    slots: dict[object, torch.Tensor]  # of each range of slots, relative to the anchor, (time,) int64


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """The rows of a batch as integers, ordered by memory and pack."""

    parts: list[tuple[int, int, slice]]  # the memory, the pack and the rows of each part
    # in the order of the batch what each row is, and its place below; in that order its anchor, column and skips
    integers: list[torch.Tensor]


def device_variates(
    plan: VariatePlan, columns: Sequence[Mapping[str, torch.Tensor]], device: torch.device
) -> DeviceVariates:
    """The plan, with packs that lie on the device; `columns` are those of each memory."""
    names, fillings = plan.variates.columns, [memory.filling for memory in plan.memories]
    for filling in fillings:
        if filling is not None and (computed := [name for name in names if name in filling.computed]):
            raise ValueError(
                f"With resident=True rows of ts.each are not computed in empty slots, got {computed[0]!r} of "
                "ts.calendar. Give it a span of its own."
            )
    filled = [filling for filling in fillings if filling is not None]
    places = [None if filling is None else filling.fragments for filling in fillings]
    return DeviceVariates(
        plan=plan,
        packs=[[as_integers(held[name]).view(-1) for name in names] for held in columns],
        fragments=[None if some is None else FragmentTensors.of(some, device) for some in places],
        fill=filled[0].fills[names[0]].to(device).view(1) if filled else None,
        slots={span.slots: torch.tensor([*span.slots[0]], dtype=torch.int64, device=device) for span in plan.spans},
    )


def memory_of(variates: DeviceVariates) -> list[torch.Tensor]:
    """The memory that rows are gathered from."""
    places = [tensor for of_memory in variates.fragments for tensor in of_memory or ()]
    fill = [] if variates.fill is None else [variates.fill]
    return [*(pack for packs in variates.packs for pack in packs), *places, *fill, *variates.slots.values()]


def rows_on_host(
    plan: VariatePlan, source: Int32s | None, anchors: Int64s, skips: Int64s | None, keys: Uint64s | None
) -> DeviceRows:
    """The rows of windows, to be sent to a device; the arguments are those of `gather_rows`."""
    rows, packs = rows_of(plan, source, len(anchors), keys), len(plan.variates.columns)
    part = rows.pack if source is None else source[rows.window].astype(np.int64) * packs + rows.pack
    order = np.argsort(part, kind="stable")
    part, window = part[order], rows.window[order]
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)] if len(part) else [0]
    skips = None if skips is None or not plan.draws else skips[plan.draws]
    arrays = [rows.window, rows.variate, rows.pack, np.argsort(order), anchors[window], rows.variate[order]]
    arrays += [] if skips is None else [*skips[:, window]]
    return DeviceRows(
        parts=[(*divmod(int(part[start]), packs), slice(start, stop)) for start, stop in pairwise(edges)],
        integers=[torch.from_numpy(np.ascontiguousarray(array)) for array in arrays],
    )


def gather_variates(variates: DeviceVariates, rows: DeviceRows) -> Batch:
    """The entries of the spans of a batch; the integers of its rows are on the device."""
    window, variate, pack, place, *in_order = rows.integers
    batch, flags, spans = Batch(), Batch(), variates.plan.spans
    drawn = draws_of(spans)
    seen: dict[object, torch.Tensor] = {}  # spans over the same slots share one tensor
    for span in spans:
        parts = [_part(variates, span, draw_number(span, drawn), part, in_order) for part in rows.parts]
        dtype = variates.plan.dtype
        if not parts:
            parts = [(torch.empty(0, len(span), dtype=dtype, device=place.device).view(dtype), None)]
        values = torch.cat([of_part for of_part, _ in parts]).index_select(0, place)
        batch[span.name] = values if values.dtype == dtype else values.view(dtype)
        if variates.fill is not None:
            if span.slots not in seen:
                every = [torch.ones_like(of, dtype=torch.bool) if flag is None else flag for of, flag in parts]
                seen[span.slots] = torch.cat(every).index_select(0, place)
            flags[f"{span.name}.observed"] = seen[span.slots]
    named = {"window": window.clone(), "variate": variate.clone(), "pack": pack.clone()}  # views would keep all of them
    return batch | flags | {f"{span.name}.{name}": tensor for span in spans for name, tensor in named.items()}


def _part(
    variates: DeviceVariates,
    span: Span,
    draw: int,
    part: tuple[int, int, slice],
    integers: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The values of the rows of one pack, `(rows, time)`, and which of them have a row in the stash."""
    memory, pack, among = part
    anchors, variate, *skips = (tensor[among] for tensor in integers)
    items, width = variates.packs[memory][pack], int(variates.plan.widths[memory, pack])
    slots, fragments = variates.slots[span.slots], variates.fragments[memory]
    index = InSlots(anchors, torch.stack(skips) if skips else None).matrix(fragments, slots, draw)
    flags = None if fragments is None else index >= 0
    index = index.clamp(min=0)
    at = (index * width + variate[:, None]).reshape(-1)
    values = items.index_select(0, at).view(index.shape)
    return values if flags is None or variates.fill is None else torch.where(flags, values, variates.fill), flags
