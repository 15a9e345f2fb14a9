"""`latest`: the newest window of each entity, and the last rows of entities."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError
from tensorstash.stash.printed import entity_text
from tensorstash.windows.intervals import Intervals, intervals
from tensorstash.windows.placement import Placement
from tensorstash.windows.require import Required, of_history
from tensorstash.windows.row_ranges import missing_ranges
from tensorstash.windows.selection import complete, enough_rows
from tensorstash.windows.slots import nearest_rows, run_edges, runs_at, slots_at, with_tail

_has_warned = {"short": False}


def latest(placement: Placement, judged: Sequence[Required], of: str | None) -> Intervals:
    """One window per entity, anchored after its last row, or after the last row with a value in the column `of`."""
    kept, had = _newest(placement, judged, of), _with_rows(placement)
    newest = replace(placement, intervals=kept)
    absent = had.copy()
    absent[newest.window_entities(np.arange(len(newest)))] = False
    if absent.any() and not _has_warned["short"]:
        _has_warned["short"] = True  # a service would be told at each request
        first = placement.stash.entity_at(int(absent.argmax()))
        warn(
            f"{np.count_nonzero(absent):,} of {np.count_nonzero(had):,} entities have no latest window, such as "
            f"{first!r}: they have too few consecutive rows before the anchor, or a missing value that require= does "
            "not allow."
        )
    _warn_of_ends(newest)
    return kept


def has_latest(placement: Placement, judged: Sequence[Required]) -> bool:
    """Whether there is a latest window, behind the last rows or behind the last values of a column."""
    for of in (None, *placement.stash):
        with suppress(ValueError):  # there is none, or the times after the rows are not known
            every = replace(placement, slots=with_tail(placement.slots, placement.stash, placement.horizon))
            enough_rows(replace(every, intervals=_newest(every, judged, of)))
            return True
    return False


def _newest(placement: Placement, judged: Sequence[Required], of: str | None) -> Intervals:
    """The windows of `latest`; a `NoWindowError` if there is none."""
    rows = last_rows(placement, of)
    rows = rows[rows >= 0]
    slots, (run_starts, _) = placement.slots, run_edges(placement.slots)
    _check_no_gap_after(placement, rows, of)
    starts = slots_at(slots, rows) + 1 - placement.history
    starts = starts[starts >= run_starts[runs_at(slots, rows)]]
    if not len(starts):
        raise NoWindowError(
            f"The latest window of an entity needs {placement.history - slots.lead} consecutive rows before its "
            "anchor; no entity has as many. Shorten the history, or give min_history=."
        )
    return complete(replace(placement, intervals=intervals(starts, np.ones_like(starts), 1)), of_history(judged))


def _warn_of_ends(newest: Placement) -> None:
    """Warn of latest windows that end at different times, unless rows are events, which always do."""
    if newest.stash.time is None or newest.slots.frequency is None:
        return
    rows, _ = nearest_rows(newest.slots, newest.anchor_slots(np.arange(len(newest))) - 1)
    ends = newest.times[rows]
    if ended := int(np.count_nonzero(ends < ends.max())):
        first, form = ends.argmin(), newest.stash.clock.format
        name = newest.stash.entity_at(int(newest.entities_at(rows[first])))
        warn(
            f"{ended:,} of {len(ends):,} series end before {form(int(ends.max()))}, the last time of all; {name!r} "
            f"ends first, at {form(int(ends[first]))}. Their latest windows forecast earlier times, which "
            "windows.anchors gives. To leave such series out, load with filter=."
        )


def _with_rows(placement: Placement) -> Bools:
    """Which entities may have a window: the chosen ones that have rows."""
    has_rows: Bools = np.diff(placement.offsets) > 0
    return has_rows if placement.chosen is None else has_rows & placement.chosen


def last_rows(placement: Placement, of: str | None) -> Int64s:
    """The rows of `last_values`; raises `NoWindowError` if no entity has a value."""
    rows = last_values(placement, of)
    if _with_rows(placement).any() and not (rows >= 0).any():
        raise NoWindowError(f"of= names a column by its last value; {of!r} has no value in these entities.")
    return rows


def last_values(placement: Placement, of: str | None) -> Int64s:
    """The last row of each chosen entity, or the last one with a value in the column `of`, `(entities,)`; -1: none."""
    rows = placement.offsets[1:] - 1
    if of is not None:
        if not isinstance(of, str):
            raise TypeError(f"of must be the name of a column, got {shown(of)}.")
        placement.stash[of]  # raises for an unknown column
        low, high = missing_ranges(placement.stash, of)
        k = np.searchsorted(low, rows, "right") - 1
        inside = (k >= 0) & (rows < np.append(high, 0)[k])
        rows = np.where(inside, np.append(low, 0)[k] - 1, rows)
    return np.where(_with_rows(placement) & (rows >= placement.offsets[:-1]), rows, -1)


def _check_no_gap_after(placement: Placement, rows: Int64s, of: str | None) -> None:
    """Raise if the known future of a window ends at a gap, because the rows after the gap would be left out."""
    entity = placement.entities_at(rows)
    ends = placement.offsets[entity + 1] - 1
    cut = runs_at(placement.slots, rows) != runs_at(placement.slots, ends)
    if cut.any():
        name = entity_text(placement.stash, int(entity[cut.argmax()]))
        raise NoWindowError(
            f"The rows after the last value of {of!r} are its known future, and there is a gap among those of {name}. "
            "Take gaps='mask', which puts empty slots there."
        )
