"""Windows gathered from columns in the memory of a device, with operations of torch that every device has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tensorstash.gather.memory import Filling, Fragments
from tensorstash.gather.span import Span, draw_number, draws_of
from tensorstash.windows.placement import Placement


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """A span of a column that lies on a device."""

    items: torch.Tensor  # (rows, items of a row) integers of the column's width
    fill: torch.Tensor  # (1,) the same type: what an empty slot holds
    slots: int  # the index of its slots in the plan
    is_distance: bool = False


@dataclass(frozen=True, slots=True)
class DeviceFragments:
    """Fragments of rows on the device, each tensor `(fragments,)` int64."""

    first: torch.Tensor  # the slot of the first row
    row: torch.Tensor  # that row
    rows: torch.Tensor

    @classmethod
    def of(cls, fragments: Fragments, device: torch.device) -> "DeviceFragments":
        """The fragments on a device."""
        return cls(*(torch.from_numpy(array).to(device) for array in (fragments.first, fragments.row, fragments.rows)))


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """How windows of one stash are gathered on a device."""

    spans: tuple[DeviceSpan, ...]
    slots: tuple[range, ...]  # relative to the anchor; spans over the same slots, equally drawn, share one range
    draws: tuple[int, ...]  # of each range, the number of its draw or -1
    relative: tuple[torch.Tensor, ...]  # the ranges on the device, (time,) int64 each
    fragments: DeviceFragments | None  # where slots may be empty; else slots are rows
    filling: Filling | None  # on the host, where values are computed
    stretches: tuple[torch.Tensor, ...]  # of each stretch of time: rows counted back from its end, (max_rows,) int64


# the row after its last one, the number of rows, and the moment of each window, (windows,) int64 each
DeviceStretch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The values of a few windows."""

    values: list[torch.Tensor]  # of each span, (windows, time, items of a row)
    # of each range of slots, and then of each stretch, (windows, time) bool; None: no slot can be empty
    observed: list[torch.Tensor | None]


def device_plan(placement: Placement, columns: Mapping[str, torch.Tensor], device: torch.device) -> DevicePlan:
    """The plan for the spans of these windows, whose columns lie on the device."""
    alike = {span.slots: span for span in placement.whole_spans}
    slots, drawn = [*alike], draws_of(placement.spans)
    filling, fragments = placement.memory.filling, None
    if filling is not None:
        fragments = DeviceFragments.of(filling.fragments, device)
    in_slots = [
        DeviceSpan(columns[span.column], _fill(filling, span, columns[span.column]), slots.index(span.slots))
        for span in placement.whole_spans
    ]
    in_time = [
        DeviceSpan(
            columns[span.column], time_span.fills[span.column].to(device).view(1), len(slots) + k, span.is_distance
        )
        for k, time_span in enumerate(placement.time_spans)
        for span in time_span.spans
    ]
    return DevicePlan(
        spans=(*in_slots, *in_time),
        slots=tuple(of_span for of_span, _ in slots),
        draws=tuple(draw_number(span, drawn) for span in alike.values()),
        relative=tuple(torch.tensor([*of_span], dtype=torch.int64, device=device) for of_span, _ in slots),
        fragments=fragments,
        filling=filling,
        stretches=tuple(torch.arange(-time_span.max_rows, 0, device=device) for time_span in placement.time_spans),
    )


def tensors_of(plan: DevicePlan) -> list[torch.Tensor]:
    """The memory that windows are gathered from."""
    places = plan.fragments
    fragments = [] if places is None else [places.first, places.row, places.rows]
    return [
        *fragments,
        *plan.relative,
        *plan.stretches,
        *(tensor for span in plan.spans for tensor in (span.items, span.fill)),
    ]


def _fill(filling: Filling | None, span: Span, items: torch.Tensor) -> torch.Tensor:
    if filling is None:
        return items.view(-1)[:1]  # never used
    return filling.fills[span.column].to(items.device).view(1)


def gathered(
    plan: DevicePlan,
    anchors: torch.Tensor,
    stretches: Sequence[DeviceStretch] = (),
    skips: Sequence[torch.Tensor] = (),
) -> Gathered:
    """The windows with anchors at these slots, and with these stretches of rows: `(windows,)` int64 on the device.

    `skips` are the slots that each draw leaves out, `(windows,)`.
    """
    index = [anchors[:, None] + relative for relative in plan.relative]
    observed: list[torch.Tensor | None] = [None] * len(index)
    if plan.fragments is not None:
        index = [rows_at(plan.fragments, of_range) for of_range in index]
        filled = [of_range >= 0 for of_range in index]
        for k, draw in enumerate(plan.draws):
            if draw >= 0 and skips:
                filled[k] &= plan.relative[k] - plan.relative[k][0] >= skips[draw][:, None]
        observed = [*filled]
        index = [of_range.clamp(min=0) for of_range in index]
    for back, (stop, length, _) in zip(plan.stretches, stretches):
        seen = back >= -length[:, None]
        observed.append(seen)
        index.append(torch.where(seen, stop[:, None] + back, 0))
    values = []
    for span in plan.spans:
        rows, flags = _selected(span.items, index[span.slots]), observed[span.slots]
        if span.is_distance:
            rows = stretches[span.slots - len(plan.relative)][2][:, None, None] - rows
        values.append(rows if flags is None else torch.where(flags[..., None], rows, span.fill))
    return Gathered(values, observed)


def rows_at(fragments: DeviceFragments, slots: torch.Tensor) -> torch.Tensor:
    """The row of each slot, -1 if it is empty."""
    k = (torch.searchsorted(fragments.first, slots, right=True) - 1).clamp_(min=0)
    after = slots - fragments.first[k]
    inside = (after >= 0) & (after < fragments.rows[k])
    return torch.where(inside, fragments.row[k] + after, -1)


def _selected(items: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return items.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
