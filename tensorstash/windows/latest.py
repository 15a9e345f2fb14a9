"""The newest window of each entity, for forecasts of what comes next."""

import warnings

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.gather.span import Span
from tensorstash.windows.intervals import Intervals, intervals
from tensorstash.windows.layout import Layout
from tensorstash.windows.require import complete, missing_ranges
from tensorstash.windows.slots import run_edges, run_rows, slots_at


def latest(layout: Layout, judged: list[Span], of: str | None) -> Intervals:
    """One window per entity, anchored behind its last row, or behind the last row with a value in the column `of`."""
    rows = _last_rows(layout, of)
    slots, (begins, _) = layout.slots, run_edges(layout.slots)
    first_rows, _ = run_rows(slots, layout.stash.rows)
    run = np.searchsorted(first_rows, rows, "right") - 1
    _check_no_gap_behind(layout, rows, run, of)
    starts = slots_at(slots, rows) + 1 - layout.history
    starts = starts[starts >= begins[run]]
    if not len(starts):
        raise DataError(
            f"The latest window of an entity needs {layout.history - slots.lead} consecutive rows before its anchor; "
            "no entity has as many. Shorten the history, or give min_history=."
        )
    past = [Span(s.name, s.column, s.begin, min(s.end, 0), s.step) for s in judged if s.begin < 0]
    kept = complete(layout, past, intervals(starts, np.ones_like(starts), 1))
    without = len(layout.offsets) - 1 - len(kept)
    if without:
        warnings.warn(
            f"{without:,} of {len(layout.offsets) - 1:,} entities have no latest window: too few consecutive rows "
            "before the anchor, or a missing value that require= refuses.",
            stacklevel=3,
        )
    return kept


def _last_rows(layout: Layout, of: str | None) -> Int64s:
    """The last row of each entity, or the last one with a value; entities without one are left out."""
    first, rows = layout.offsets[:-1], layout.offsets[1:] - 1
    if of is not None:
        low, high = missing_ranges(layout.stash, of)
        k = np.searchsorted(low, rows, "right") - 1
        inside = (k >= 0) & (rows < np.append(high, 0)[k])
        rows = np.where(inside, np.append(low, 0)[k] - 1, rows)
    return rows[rows >= first]


def _check_no_gap_behind(layout: Layout, rows: Int64s, run: Int64s, of: str | None) -> None:
    """Refuse to leave out what is known of the future behind a gap."""
    first_rows, _ = run_rows(layout.slots, layout.stash.rows)
    entity = np.searchsorted(layout.offsets, rows, "right") - 1
    cut = run != np.searchsorted(first_rows, layout.offsets[entity + 1] - 1, "right") - 1
    if cut.any():
        name = layout.stash.entities[entity[cut.argmax()]]
        whose = "" if name is None else f" of entity {name!r}"
        raise DataError(
            f"The rows behind the last value of {of!r} are its known future, and a run of time ends among them{whose}. "
            "Take gaps='mask', which puts empty slots there."
        )
