"""Fills: the value of each column in slots without a row."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tensorstash.common.dtypes import Int64s, as_integers
from tensorstash.errors import SchemaError
from tensorstash.gather.memory import Compute
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash
from tensorstash.windows.slots import Slots, times_at


def slot_fills(stash: Stash, spans: Sequence[Span], slots: Slots) -> dict[str, torch.Tensor]:
    """The value of empty slots by column, where slots are steps of time."""
    return empty_values(stash, spans, time_field_fills(stash, spans, slots))


def time_field_fills(stash: Stash, spans: Sequence[Span], slots: Slots) -> dict[str, Compute]:
    """Functions that compute columns of `ts.calendar` in slots without a row, if the step of time is known."""
    if stash.time is None or slots.frequency is None:
        return {}
    columns = dict.fromkeys(column for span in spans for column in span.columns)
    return {name: partial(_time_fields_at, stash, name, slots) for name in columns if stash.about(name).calendar}


def _time_fields_at(stash: Stash, name: str, slots: Slots, at: Int64s) -> torch.Tensor:
    from tensorstash.columns.time_fields import time_field_values  # here, because it imports pyarrow

    assert stash.time is not None
    values = time_field_values(stash.about(name).calendar, times_at(slots, stash.time.numpy(), at), stash.clock)
    return as_integers(torch.from_numpy(values).to(stash[name].dtype))


def empty_values(
    stash: Stash, spans: Sequence[Span], computed: Collection[str], *, timed: bool = True
) -> dict[str, torch.Tensor]:
    """The value of empty slots by column; a column without one is a `SchemaError`.

    For the columns `computed` it is NaN or 0: they are computed, unless another component of a mix cannot compute them.

    `timed`: whether an empty slot stands for a time. The empty slots of spans in time do not.
    """
    columns = dict.fromkeys(column for span in spans for column in span.columns)
    filled = {name: _empty_value(stash, name, timed=timed) for name in columns if name not in computed}
    _check_alike(stash, spans, filled)
    fills = {name: math.nan if stash[name].dtype.is_floating_point else 0 for name in computed}
    return filled | {name: as_integers(stash[name].new_full((1,), fill))[0] for name, fill in fills.items()}


def _check_alike(stash: Stash, spans: Sequence[Span], fills: Mapping[str, torch.Tensor]) -> None:
    """Refuse columns of one `ts.each` whose empty slots hold different values."""
    for span in spans:
        first, *others = [name for name in span.columns if name in fills] or [""]
        for name in others:
            if not fills[name].equal(fills[first]):
                one, two = (fills[column].view(stash[column].dtype).item() for column in (first, name))
                raise SchemaError(
                    f"The columns of a ts.each must have one value in empty slots; it is {one} in {first!r} and {two} "
                    f"in {name!r}. Give both the same empty= in ts.column."
                )


def _empty_value(stash: Stash, name: str, *, timed: bool) -> torch.Tensor:
    """The value of the empty slots of a column: its `empty=`, else its `fill=`, else NaN, code -1 or no validity.

    The numbers of `ts.calendar` start at 0, so -1 means that the slot has no time.
    """
    about, dtype = stash.about(name), stash[name].dtype
    fill: Any = about.fill if about.empty is None else about.empty
    if about.kind == "category":
        fill = -1 if fill is None else stash.vocabulary(name).index(fill)
    elif about.kind == "hashed":
        fill = -1
    elif fill is None and dtype.is_floating_point:
        fill = float("nan")
    elif about.calendar and not timed:
        fill = -1
    elif about.is_validity:
        fill = False
    if fill is None and about.calendar:
        raise SchemaError(
            f"An empty slot has a time only if the step of time is known, and so {name!r} of ts.calendar has no value "
            "there. Take gaps='split' or 'mask'."
        )
    if fill is None:
        raise SchemaError(
            f"An empty slot needs a value; column {name!r} is {dtype}, which has none for missing. Load it with "
            f"ts.column({name!r}, empty=...)."
        )
    return as_integers(torch.tensor([fill], dtype=dtype))[0]
