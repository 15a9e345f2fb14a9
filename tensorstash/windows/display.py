"""Windows as text, and as HTML with their spans."""

import html

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.html import table
from tensorstash.common.text import counted
from tensorstash.windows.align import align_text
from tensorstash.windows.placement import Placement

_MOST_SPANS = 20


def as_text(placement: Placement) -> str:
    """Windows as one line of text."""
    return f"Windows: {_caption(placement)}; {', '.join(f'{name}={what}' for name, what in _spans(placement))}"


def as_html(placement: Placement) -> str:
    """The text, with a table of the spans."""
    spans = _spans(placement)
    more = f"<p>and {len(spans) - _MOST_SPANS:,} more spans</p>" if len(spans) > _MOST_SPANS else ""
    rows = table(("span", "column and slots"), spans[:_MOST_SPANS])
    return f"<p><b>Windows</b>: {html.escape(_caption(placement))}</p>{rows}{more}"


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
