"""Windows gathered from columns that lie on a device, with operations of torch that every device has.

Not by strided views as on the host: a device may copy such a view before it selects from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from tensorstash.gather.gather import GatherPlan
from tensorstash.gather.span import Span
from tensorstash.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """A span of a column that lies on a device."""

    items: torch.Tensor  # (rows, items of a row) integers of the column's width
    fill: torch.Tensor  # (1,) the same type: what an empty slot holds
    slots: int  # the index of its slots in the plan


@dataclass(frozen=True, slots=True)
class Fragments:
    """Stretches of rows without an empty slot between them, on the device, each `(fragments,)` int64."""

    first: torch.Tensor  # the slot of the first row
    row: torch.Tensor  # that row
    rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """How windows of one stash are gathered on a device."""

    spans: tuple[DeviceSpan, ...]
    slots: tuple[range, ...]  # relative to the anchor; spans over the same slots share one range
    relative: tuple[torch.Tensor, ...]  # (time,) int64, the same on the device
    fragments: Fragments | None  # where slots may be empty; else slots are rows


@dataclass(frozen=True, slots=True)
class Gathered:
    """The values of a few windows."""

    values: list[torch.Tensor]  # of each span, (windows, time, items of a row)
    observed: list[torch.Tensor] | None  # of each range of slots, (windows, time) bool, where slots may be empty


# from the slots of the anchors, (windows,) int64 on the device, to the values of these windows
Way = Callable[[DevicePlan, torch.Tensor], Gathered]


def device_plan(windows: Windows, columns: Mapping[str, torch.Tensor], device: torch.device) -> DevicePlan:
    """The plan for the spans of these windows, whose columns lie on the device."""
    plan: GatherPlan = windows._plan
    slots = [*dict.fromkeys(map(_slots, windows.spans))]
    fragments = None
    if plan.filling is not None:
        own = plan.filling.fragments
        fragments = Fragments(*(torch.from_numpy(some).to(device) for some in (own.first, own.row, own.rows)))
    return DevicePlan(
        spans=tuple(
            DeviceSpan(columns[span.column], _fill(plan, span, columns[span.column]), slots.index(_slots(span)))
            for span in windows.spans
        ),
        slots=tuple(slots),
        relative=tuple(torch.tensor([*some], dtype=torch.int64, device=device) for some in slots),
        fragments=fragments,
    )


def tensors_of(plan: DevicePlan) -> list[torch.Tensor]:
    """The memory that windows are gathered from."""
    places = plan.fragments
    own = [] if places is None else [places.first, places.row, places.rows]
    return [*own, *plan.relative, *(one for span in plan.spans for one in (span.items, span.fill))]


def _slots(span: Span) -> range:
    return range(span.begin, span.end, span.step)


def _fill(plan: GatherPlan, span: Span, items: torch.Tensor) -> torch.Tensor:
    if plan.filling is None:
        return items.view(-1)[:1]  # never used
    return plan.filling.fills[span.column].to(items.device).view(1)


def rows_of(plan: DevicePlan, anchors: torch.Tensor) -> list[torch.Tensor]:
    """The rows of each range of slots, `(windows, time)` int64, -1 for an empty slot."""
    slots = [anchors[:, None] + relative for relative in plan.relative]
    return slots if plan.fragments is None else [_rows(plan.fragments, some) for some in slots]


def _rows(fragments: Fragments, slots: torch.Tensor) -> torch.Tensor:
    k = (torch.searchsorted(fragments.first, slots, right=True) - 1).clamp_(min=0)
    after = slots - fragments.first[k]
    there = (after >= 0) & (after < fragments.rows[k])
    return torch.where(there, fragments.row[k] + after, -1)


def by_torch(plan: DevicePlan, anchors: torch.Tensor) -> Gathered:
    """The windows with anchors at these slots."""
    rows = rows_of(plan, anchors)
    if plan.fragments is None:
        return Gathered([_selected(span.items, rows[span.slots]) for span in plan.spans], None)
    observed = [some >= 0 for some in rows]
    index = [some.clamp(min=0) for some in rows]
    values = [
        torch.where(observed[span.slots][..., None], _selected(span.items, index[span.slots]), span.fill)
        for span in plan.spans
    ]
    return Gathered(values, observed)


def _selected(items: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return items.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
