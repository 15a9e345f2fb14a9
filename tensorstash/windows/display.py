"""Windows as text."""

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.text import counted
from tensorstash.windows.placement import Placement
from tensorstash.windows.strides import align_text


def as_text(placement: Placement) -> str:
    """Windows as one line of text."""
    in_time = (text for time_span in placement.time_spans for text in time_span.texts)
    return f"Windows: {_caption(placement)}; {', '.join([*map(str, placement.slot_spans), *in_time])}"


def _caption(placement: Placement) -> str:
    frequency, intervals, count = placement.slots.frequency, placement.intervals, len(placement.offsets) - 1
    step = "of a" if isinstance(frequency, Calendar) else "every"
    units = ("rows" if placement.fills is None else "slots") + (f" {step} {frequency.text}" if frequency else "")
    where = (
        f"stride {intervals.stride}{align_text(placement)}, in {counted(len(intervals.guide.base), 'interval')} of "
        f"{counted(count, 'entity')}"
    )
    if placement.points is not None:
        where = f"at points in time of {counted(len(np.unique(placement.points.entity)), 'entity')}"
    if placement.cover is not None:
        where += f", which cover {placement.cover.span.name!r}"
    sizes = f" of {placement.history} + {placement.horizon} {units}," if placement.slot_spans else ""
    return f"{len(placement):,}{sizes} {where}"
