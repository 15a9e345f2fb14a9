"""Predictions as a frame, each beside its entity and time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from tensorstash.common.checks import names_in
from tensorstash.common.dtypes import Int64s
from tensorstash.stash.interop import entity_parts, time_series
from tensorstash.windows.layout import Layout, entities_of
from tensorstash.windows.slots import nearest_rows, times_at

if TYPE_CHECKING:
    import polars as pl


def to_frame(layout: Layout, anchors: Int64s, predictions: torch.Tensor, names: Sequence[str] | None) -> "pl.DataFrame":
    """Entity, time and values of every slot of the horizon (without one: of the window), by the slots of anchors."""
    import polars as pl

    begin, steps = (0, layout.horizon) if layout.horizon else (-layout.history, layout.history)
    values = torch.as_tensor(predictions).detach().cpu()
    if values.shape[:2] != (len(anchors), steps) or values.ndim not in (2, 3):
        shape = f"({len(anchors)}, {steps})"
        raise ValueError(
            f"predictions= has shape {shape}, or {shape[:-1]}, n) for n values of each slot; got {tuple(values.shape)}."
        )
    slots = anchors[:, None] + np.arange(begin, begin + steps)
    rows, distance = nearest_rows(layout.slots, slots)
    known = distance >= 0  # slots in front of a run are left out
    columns = _keys(layout, entities_of(layout, rows[known]), slots[known])
    called = names_of(values, names)
    for name in called:
        if name in {key.name for key in columns}:
            raise ValueError(
                f"The frame has the entity and time columns {[key.name for key in columns]}; {name!r} names "
                "predictions too. Give other names=."
            )
    known_values = values.reshape(len(anchors), steps, len(called))[torch.from_numpy(known)]
    if known_values.dtype == torch.bfloat16:  # which numpy lacks
        known_values = known_values.float()
    columns += [pl.Series(name, known_values[:, k].numpy()) for k, name in enumerate(called)]
    return pl.DataFrame(columns)


def names_of(values: torch.Tensor, names: Sequence[str] | None) -> list[str]:
    """The names of the columns of predictions, `(batch, steps)` or `(batch, steps, n)`."""
    count = values.shape[2] if values.ndim == 3 else 1
    if names is None:
        return [f"value_{k}" for k in range(count)] if values.ndim == 3 else ["value"]
    given = names_in(names, "names")
    if len(given) != count or len(set(given)) != count:
        raise ValueError(f"names= has a name of its own for each of {count} values of a slot; got {given}.")
    return given


def _keys(layout: Layout, entities: Int64s, slots: Int64s) -> "list[pl.Series]":
    """The entity and the time columns, named as in the source, as far as there are any."""
    stash = layout.stash
    keys = [names.gather(entities) for names in entity_parts(stash)]
    if layout.times is not None:
        times = torch.from_numpy(times_at(layout.slots, layout.times, slots))
        keys.append(time_series(stash, str(stash.time_name), times))
    return keys
