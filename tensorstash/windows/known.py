"""Columns that are known in slots without a row: what `ts.calendar` makes follows from the time of the slot."""

from collections.abc import Sequence
from functools import partial

import torch

from tensorstash.columns.calendar import calendar_values
from tensorstash.common.dtypes import Int64s, as_integers
from tensorstash.gather.empty import Compute
from tensorstash.gather.span import Span
from tensorstash.windows.layout import Layout
from tensorstash.windows.slots import times_at


def computed(layout: Layout, spans: Sequence[Span]) -> dict[str, Compute]:
    """How the values of such columns are computed; none where the step of time is not known."""
    if layout.times is None or layout.slots.frequency is None:
        return {}
    columns = dict.fromkeys(span.column for span in spans)
    return {name: partial(_at_slots, layout, name) for name in columns if layout.stash.about(name).calendar}


def _at_slots(layout: Layout, name: str, slots: Int64s) -> torch.Tensor:
    assert layout.times is not None
    times = times_at(layout.slots, layout.times, slots)
    values = calendar_values(layout.stash.about(name).calendar, times, layout.stash.clock)
    return as_integers(torch.from_numpy(values).to(layout.stash[name].dtype))
