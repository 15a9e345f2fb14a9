"""What empty slots hold: a value for each column, or one that follows from the time of the slot."""

from collections.abc import Sequence
from functools import partial

import torch

from tensorstash.common.dtypes import Int64s, as_integers
from tensorstash.gather.empty import fills
from tensorstash.gather.span import Compute, Span
from tensorstash.stash.stash import Stash
from tensorstash.windows.slots import Slots, times_at


def slot_fills(stash: Stash, spans: Sequence[Span], slots: Slots) -> dict[str, torch.Tensor]:
    """The value of empty slots by column."""
    return fills(stash, spans, calendar_fills(stash, spans, slots))


def calendar_fills(stash: Stash, spans: Sequence[Span], slots: Slots) -> dict[str, Compute]:
    """How columns of `ts.calendar` follow from the time of a slot without a row, if the step of time is known."""
    if stash.time is None or slots.frequency is None:
        return {}
    columns = dict.fromkeys(span.column for span in spans)
    return {name: partial(_calendar_at, stash, name, slots) for name in columns if stash.about(name).calendar}


def _calendar_at(stash: Stash, name: str, slots: Slots, at: Int64s) -> torch.Tensor:
    from tensorstash.columns.calendar import calendar_values  # here, because it imports pyarrow

    assert stash.time is not None
    values = calendar_values(stash.about(name).calendar, times_at(slots, stash.time.numpy(), at), stash.clock)
    return as_integers(torch.from_numpy(values).to(stash[name].dtype))
