"""Predictions as a frame with their entities and times."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from tensorstash.common.checks import flag, names_in, shown
from tensorstash.common.dtypes import Int64s
from tensorstash.stash.interop import entity_parts, time_series
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import nearest_rows, times_at

if TYPE_CHECKING:
    import polars as pl


def to_frame(
    placement: Placement,
    ids: Int64s,
    predictions: torch.Tensor,
    names: Sequence[str] | None,
    *,
    origin: bool,
    step: bool,
) -> "pl.DataFrame":
    """Entity, time and values of every slot of the horizon (without one: of the window), or of windows without slots.

    Of `cover` they are the slots of its span that are shown first.

    `ids` are of the windows, `(batch,)`; the other arguments are those of `Windows.to_frame`.
    """
    import polars as pl

    origin, step = flag(origin, "origin"), flag(step, "step")
    anchors, by_slot = placement.anchor_slots(ids), placement.length > 0
    if not by_slot and (origin or step):
        raise ValueError("origin= and step= belong to slots, and these windows have none. Leave them out.")
    start, steps = (0, placement.horizon) if placement.horizon else (-placement.history, placement.history)
    cover = placement.cover
    if cover is not None:
        start, steps = cover.span.start, len(cover.span)
    values = _checked(predictions, (len(ids), steps) if by_slot else (len(ids),))
    slots = anchors[:, None] + np.arange(start, start + max(steps, 1))
    known = np.ones(slots.shape, np.bool_)
    if cover is not None:
        known = ~placement.repeated(cover, ids, anchors)
    elif by_slot:  # leaves out slots before a run
        distance = nearest_rows(placement.slots, slots)[1]
        known = distance == 0 if placement.is_whole else distance >= 0
    window, slot = np.nonzero(known)
    entities = placement.window_entities(ids)[window]
    columns = [part.gather(entities) for part in entity_parts(placement.stash)]
    if placement.stash.time is not None:
        columns.append(_slot_times(placement, slots[known]) if by_slot else _window_times(placement, ids, anchors))
    called, keys = _names_of(values, names), [key.name for key in columns]
    added = ["anchor"] * origin + ["step"] * step
    if twice := [name for name in added + called if name in keys or (name in added and name in called)]:
        raise ValueError(f"names must differ from the other columns {keys + added}, got {twice[0]!r}.")
    if origin:
        columns.append(_window_times(placement, ids[window], anchors[window]).alias("anchor"))
    if step:
        columns.append(pl.Series("step", slot + 1))
    table = values.reshape(*slots.shape, len(called))[torch.from_numpy(known)]
    return pl.DataFrame(columns + [pl.Series(name, table[:, k].numpy()) for k, name in enumerate(called)])


def _checked(predictions: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The predictions on the CPU, `(windows, steps)` or `(windows, steps, n)`; windows without slots have one step."""
    try:
        values = torch.as_tensor(predictions).detach().cpu().to_dense()
    except (TypeError, ValueError, RuntimeError) as error:  # what torch raises for values without a tensor
        raise TypeError(
            f"predictions must be a tensor, {shape} or with values on a last dimension, got {shown(predictions)}."
        ) from error
    if values.dtype == torch.bfloat16:  # numpy has no bfloat16
        values = values.float()
    if values.shape[: len(shape)] != shape or values.ndim > len(shape) + 1:
        more = f"{str(shape).rstrip('),')}, n)"
        what = "slot" if len(shape) > 1 else "window"
        raise ValueError(
            f"predictions must have shape {shape}, or {more} for n values a {what}, got {tuple(values.shape)}."
        )
    return values if len(shape) > 1 else values[:, None]


def _names_of(values: torch.Tensor, names: Sequence[str] | None) -> list[str]:
    """The names of the columns of predictions, `(batch, steps)` or `(batch, steps, n)`."""
    count = values.shape[2] if values.ndim == 3 else 1
    if names is None:
        return [f"value_{k}" for k in range(count)] if values.ndim == 3 else ["value"]
    if isinstance(names, (set, frozenset)):
        raise TypeError(f"names must be in the order of the values, got the set {names}. Write a list.")
    checked = names_in(names, "names")
    if len(checked) != count or len(set(checked)) != count:
        raise ValueError(f"names must have a different name for each of {count} values of a slot, got {checked}.")
    return checked


def _window_times(placement: Placement, ids: Int64s, anchors: Int64s) -> "pl.Series":
    """The time of each window, null if it is not known; without a time column, the row of its anchor."""
    import polars as pl

    if placement.stash.time is None:
        return pl.Series(placement.label_rows(anchors))
    if placement.points is None:
        return _slot_times(placement, anchors + placement.label_offset)
    return _series(placement, placement.points.time[ids])


def _slot_times(placement: Placement, slots: Int64s) -> "pl.Series":
    """The times of slots; null for a slot without a row if there is no step of time."""
    import polars as pl

    if placement.slots.frequency is not None:
        return _series(placement, times_at(placement.slots, placement.times, slots))
    rows, distance = nearest_rows(placement.slots, slots)
    return _series(placement, placement.times[rows]).set(pl.Series(distance != 0), None)


def _series(placement: Placement, times: Int64s) -> "pl.Series":
    return time_series(placement.stash, str(placement.stash.time_name), torch.from_numpy(times))
