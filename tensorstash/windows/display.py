"""Windows as text, and as HTML: where their stash has rows, the slots of their spans, and the first windows."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.html import escaped, lanes, lines, table
from tensorstash.gather.span import Span
from tensorstash.stash.display import picture
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals
from tensorstash.windows.layout import Layout

_FIRST = 3  # windows that are drawn
_MOST_SPANS = 20
_SLOTS = 120  # across the picture of the spans


def as_text(layout: Layout, spans: Sequence[Span], windows: Intervals, stride: int, filled: bool) -> str:
    """One line; `filled` says whether slots may be empty."""
    step = f" every {layout.slots.frequency.text}" if layout.slots.frequency else ""
    return (
        f"Windows: {len(windows):,} of {layout.history} + {layout.horizon} {'slots' if filled else 'rows'}{step}, "
        f"stride {stride}, in {len(windows.base):,} intervals of {len(layout.offsets) - 1:,} entities; "
        f"{', '.join(map(str, spans))}"
    )


class Drawn(Protocol):
    """The part of `Windows` that is drawn."""

    stash: Stash
    spans: tuple[Span, ...]
    history: int

    @property
    def length(self) -> int: ...  # noqa: D102  `Windows` describes it
    def __len__(self) -> int: ...
    def gather(self, ids: Sequence[int]) -> dict[str, torch.Tensor]: ...  # noqa: D102
    def anchors(self, ids: Sequence[int]) -> dict[str, torch.Tensor]: ...  # noqa: D102


def as_html(windows: Drawn) -> str:
    """The caption of `print`, and three pictures."""
    spans = windows.spans[:_MOST_SPANS]
    labels = [f"{span.name} = {span.column}" for span in spans]
    slots = np.array([_slots(span, windows) for span in spans])
    foot = (f"{-windows.history} slots", f"{windows.length - windows.history} from the anchor")
    return (
        f"<p>{escaped(str(windows).partition(';')[0])}</p>{picture(windows.stash)}"
        f"<p>The slots of each span:</p>{lanes(labels, slots, foot)}{_first(windows, spans)}"
    )


def _slots(span: Span, windows: Drawn) -> NDArray[np.float64]:
    """Which parts of a window a span takes, `(bins,)` of 0 and 1."""
    bins = min(_SLOTS, windows.length)
    taken = np.zeros(bins)
    taken[(np.arange(span.begin, span.end, span.step) + windows.history) * bins // windows.length] = 1
    return taken


def _first(windows: Drawn, spans: Sequence[Span]) -> str:
    """A row per span with the first windows, side by side; of a pack its first number."""
    ids = range(min(_FIRST, len(windows)))
    if not ids:
        return "<p>There is no window.</p>"
    batch, about = windows.gather([*ids]), windows.anchors([*ids])
    shown = []
    for span in spans:
        numbers = batch[span.name].reshape(len(ids), len(span), -1)[:, :, :1].to(torch.float64).squeeze(-1).numpy()
        thinned = numbers[:, :: max(1, len(span) // _SLOTS)]
        shown.append(lines([f"{span.name}, window {k}" for k in ids], [*thinned]))
    return f"<p>The first windows:</p>{table(*_anchors(windows, about))}{''.join(shown)}"


def _anchors(windows: Drawn, about: dict[str, torch.Tensor]) -> tuple[list[str], list[list[str]]]:
    """The entities and times of windows as the head and the rows of a table."""
    stash = windows.stash
    columns: dict[str, list[Any]] = {"window": [*range(len(about["entity"]))]}
    if stash.entity_names:
        columns[", ".join(stash.entity_names)] = [stash.entities[k] for k in about["entity"].tolist()]
    if "time" in about:
        columns[f"{stash.time_name} of the anchor"] = [stash.clock.format(time) for time in about["time"].tolist()]
    return [*columns], [[str(cell) for cell in cells] for cells in zip(*columns.values())]
