"""Predictions as a frame, each beside its entity and time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from tensorstash.common.checks import names_in
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
    """Entity, time and values of every slot of the horizon (without one: of the window), by the ids of windows."""
    import polars as pl

    anchors = placement.anchor_slots(ids)
    if not placement.length:
        if origin or step:
            raise ValueError("origin= and step= belong to slots, and these windows have none. Leave them out.")
        return _of_windows(placement, ids, anchors, predictions, names)
    begin, steps = (0, placement.horizon) if placement.horizon else (-placement.history, placement.history)
    values = torch.as_tensor(predictions).detach().cpu()
    if values.shape[:2] != (len(anchors), steps) or values.ndim not in (2, 3):
        shape = f"({len(anchors)}, {steps})"
        raise ValueError(
            f"predictions must have shape {shape}, or {shape[:-1]}, n) for n values a slot, got {tuple(values.shape)}."
        )
    slots = anchors[:, None] + np.arange(begin, begin + steps)
    _, distance = nearest_rows(placement.slots, slots)
    known = distance >= 0  # slots before a run are left out
    entities = np.broadcast_to(placement.window_entities(ids, anchors)[:, None], slots.shape)
    columns = [names.gather(entities[known]) for names in entity_parts(placement.stash)]
    if placement.times is not None:
        columns.append(_times(placement, placement.times, slots[known]))
    called, keys = names_of(values, names), [key.name for key in columns]
    added = ["anchor"] * origin + ["step"] * step
    if twice := [name for name in added + called if name in keys or (name in added and name in called)]:
        raise ValueError(f"names must differ from the other columns {keys + added}, got {twice[0]!r}.")
    window, slot = np.nonzero(known)
    if origin:
        columns.append(_anchors(placement, ids[window], anchors[window]))
    if step:
        columns.append(pl.Series("step", slot + 1))
    known_values = values.reshape(len(anchors), steps, len(called))[torch.from_numpy(known)]
    return pl.DataFrame(columns + _series(known_values, called))


def _of_windows(
    placement: Placement, ids: Int64s, anchors: Int64s, predictions: torch.Tensor, names: Sequence[str] | None
) -> "pl.DataFrame":
    """A row per window, of spans in time alone."""
    import polars as pl

    values = torch.as_tensor(predictions).detach().cpu()
    if len(values) != len(ids) or values.ndim not in (1, 2):
        shape = f"({len(ids)},)"
        raise ValueError(
            f"predictions must have shape {shape}, or {shape[:-1]} n) for n values a window, got {tuple(values.shape)}."
        )
    stash, times = placement.stash, placement.window_times(ids, anchors)
    assert times is not None
    columns = [part.gather(placement.window_entities(ids, anchors)) for part in entity_parts(stash)]
    columns.append(time_series(stash, str(stash.time_name), torch.from_numpy(times)))
    called, keys = names_of(values[:, None], names), [key.name for key in columns]
    if twice := [name for name in called if name in keys]:
        raise ValueError(f"names must differ from the other columns {keys}, got {twice[0]!r}.")
    return pl.DataFrame(columns + _series(values.reshape(len(ids), len(called)), called))


def _series(values: torch.Tensor, names: Sequence[str]) -> "list[pl.Series]":
    """Values `(rows, n)` as named columns."""
    import polars as pl

    if values.dtype == torch.bfloat16:  # which numpy lacks
        values = values.float()
    return [pl.Series(name, values[:, k].numpy()) for k, name in enumerate(names)]


def names_of(values: torch.Tensor, names: Sequence[str] | None) -> list[str]:
    """The names of the columns of predictions, `(batch, steps)` or `(batch, steps, n)`."""
    count = values.shape[2] if values.ndim == 3 else 1
    if names is None:
        return [f"value_{k}" for k in range(count)] if values.ndim == 3 else ["value"]
    checked = names_in(names, "names")
    if len(checked) != count or len(set(checked)) != count:
        raise ValueError(f"names must have a different name for each of {count} values of a slot, got {checked}.")
    return checked


def _anchors(placement: Placement, ids: Int64s, anchors: Int64s) -> "pl.Series":
    """The time of each anchor, or without a time column its row."""
    import polars as pl

    if placement.times is None:
        return pl.Series("anchor", placement.label_rows(anchors))
    if placement.points is not None:
        return time_series(placement.stash, "anchor", torch.from_numpy(placement.points.time[ids]))
    return _times(placement, placement.times, anchors + placement.label).alias("anchor")


def _times(placement: Placement, times: Int64s, slots: Int64s) -> "pl.Series":
    """The times of slots; null for a slot without a row if there is no step of time."""
    import polars as pl

    name = str(placement.stash.time_name)
    if placement.slots.frequency is not None:
        return time_series(placement.stash, name, torch.from_numpy(times_at(placement.slots, times, slots)))
    rows, distance = nearest_rows(placement.slots, slots)
    return time_series(placement.stash, name, torch.from_numpy(times[rows])).set(pl.Series(distance != 0), None)
