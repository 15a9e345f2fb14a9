"""Windows as text, and as HTML with pictures of the rows of their stash, their spans and the first windows."""

import html
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.html import lanes, lines, table
from tensorstash.gather.span import Span
from tensorstash.stash.printed import entity_text, picture
from tensorstash.windows.placement import Chain, Placement
from tensorstash.windows.slots import nearest_rows

_FIRST = 3  # windows that are drawn
_MOST_SPANS = 20
_SLOTS = 120  # of the picture of the spans, across


def as_text(placement: Placement) -> str:
    """Windows as one line of text."""
    frequency, intervals, count = placement.slots.frequency, placement.intervals, len(placement.offsets) - 1
    units = ("rows" if placement.fills is None else "slots") + (f" every {frequency.text}" if frequency else "")
    where = f"stride {intervals.stride}, in {len(intervals.base):,} intervals of {count:,} entities"
    if placement.points is not None:
        where = f"at points in time of {len(np.unique(placement.points.entity)):,} entities"
    sizes = f" of {placement.history} + {placement.horizon} {units}," if placement.spans else ""
    spans = [*map(str, placement.spans), *(text for time_span in placement.time_spans for text in time_span.texts)]
    return f"Windows: {len(placement):,}{sizes} {where}; {', '.join(spans)}"


def as_html(placement: Placement) -> str:
    """The text without its spans, and three pictures."""
    spans, shown = placement.spans[:_MOST_SPANS], placement.shown[:_MOST_SPANS]
    caption = html.escape(as_text(placement).partition(";")[0])
    parts = [f"<p>{caption}</p>{picture(placement.stash, _within(placement))}"]
    if spans:
        labels = [f"{span.name} = {span.column}" for span in spans]
        foot = (f"{-placement.history} slots", f"{placement.horizon} from the anchor")
        slots = np.array([_slots(span, placement) for span in spans])
        parts.append(f"<p>The slots of each span:</p>{lanes(labels, slots, foot)}")
    return "".join([*parts, _first_windows(placement, shown)])


def _within(placement: Placement) -> tuple[int, int] | None:
    """The times of the first and the last row that windows see; `None` if they may see all rows."""
    times, seen = placement.stash.time, placement.intervals
    if times is None or placement.points is not None or placement.time_spans or not len(placement):
        return None
    last = seen.first + seen.stride * (np.diff(seen.ends, prepend=0) - 1) + placement.length - 1
    moments = times.numpy()[nearest_rows(placement.slots, np.concatenate([seen.first, last]))[0]]
    return int(moments.min()), int(moments.max())


def _slots(span: Span, placement: Placement) -> NDArray[np.float64]:
    """Which parts of a window a span takes, `(bins,)` of 0 and 1."""
    bins = min(_SLOTS, placement.length)
    taken = np.zeros(bins)
    taken[(np.arange(span.start, span.stop, span.step) + placement.history) * bins // placement.length] = 1
    return taken


def _first_windows(placement: Placement, spans: Sequence[Span]) -> str:
    """A row per span with the first windows, side by side; of a pack its first number."""
    ids = range(min(_FIRST, len(placement)))
    if not ids:
        return "<p>There is no window.</p>"
    batch = Chain((placement,)).gather(ids)
    shown = []
    for span in spans:
        rows = batch[span.name]
        if span.variates is not None:  # the first row of each window
            rows = rows[torch.searchsorted(batch[f"{span.name}.window"], torch.arange(len(ids)))]
        numbers = rows.reshape(len(ids), len(span), -1)[:, :, :1].to(torch.float64).squeeze(-1).numpy()
        thinned = numbers[:, :: max(1, len(span) // _SLOTS)]
        shown.append(lines([f"{span.name}, window {k}" for k in ids], [*thinned]))
    return f"<p>The first windows:</p>{table(*_anchor_table(placement, len(ids)))}{''.join(shown)}"


def _anchor_table(placement: Placement, count: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """The head and the rows of a table: the entities and times of the first windows."""
    stash, ids = placement.stash, np.arange(count)
    slots = placement.anchor_slots(ids)
    columns = {"window": [*map(str, ids)]}
    if stash.entity_names:
        entities = placement.window_entities(ids).tolist()
        columns[", ".join(stash.entity_names)] = [entity_text(stash, entity) for entity in entities]
    if stash.time is not None:
        times = placement.window_times(ids, slots).tolist()
        columns[f"{stash.time_name} of the anchor"] = [stash.clock.format(time) for time in times]
    return [*columns], [*zip(*columns.values())]
