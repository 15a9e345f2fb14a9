"""Windows as text."""

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.text import counted
from tensorstash.windows.align import align_text
from tensorstash.windows.placement import Placement


def as_text(placement: Placement) -> str:
    """Windows as one line of text."""
    return f"Windows: {_caption(placement)}; {', '.join(f'{name}={what}' for name, what in _spans(placement))}"


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
    sizes = f" of {placement.history} + {placement.horizon} {units}," if placement.spans else ""
    return f"{len(placement):,}{sizes} {where}"


def _spans(placement: Placement) -> list[tuple[str, str]]:
    """The name of each span, and its column and slots."""
    texts = [(span.name, str(span)) for span in placement.spans]
    for time_span in placement.time_spans:
        texts += [(span.name, text) for span, text in zip(time_span.shown, time_span.texts)]
    return [(name, text.removeprefix(f"{name}=")) for name, text in texts]
