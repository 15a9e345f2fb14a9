"""Selections of windows: those without missing values (`require`), at true rows (`where`), the newest (`latest`)."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, is_integer, is_listed, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.ranges import true_ranges
from tensorstash.errors import NoWindowError
from tensorstash.stash.stash import Stash, entity_number
from tensorstash.windows.at import points_of
from tensorstash.windows.intervals import Intervals, drop, intervals, keep, of_ids
from tensorstash.windows.placement import Placement
from tensorstash.windows.points import Refused, placed
from tensorstash.windows.require import Required, incomplete
from tensorstash.windows.row_ranges import missing_ranges, row_ranges, slot_ranges
from tensorstash.windows.slots import empty_slots, nearest_rows, run_edges, run_rows, runs_at, slots_at
from tensorstash.windows.time_spans import TimeSpan

_WINDOWS = 1 << 16  # tested at a time
_has_warned = {"short": False}

Where = str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor


def complete(placement: Placement, judged: Sequence[Required]) -> Intervals:
    """The windows that lack no more values than `require=` allows; if there is none, a `NoWindowError`."""
    whole = placement.intervals
    if not judged:
        return whole
    kept = drop(whole, *incomplete(placement, judged))
    if not len(kept):
        names = [*dict.fromkeys(repr(asked.span.name) for asked in judged)]
        raise NoWindowError(
            "require= keeps the windows without a missing value, or with as few as a share allows; each of the "
            f"{len(whole):,} windows has too many in {', '.join(names)}. Shorten the window, lower the share, as in "
            f"require={{{names[0]}: {judged[0].share / 2:g}}}, or load with fill=, whose value counts as data."
        )
    return kept


def chosen(placement: Placement, test: Callable[[Int64s, Int64s], Bools]) -> Placement:
    """The windows for which a test is true; it takes their ids and the slots of their anchors."""
    kept = _tested(placement, test)
    if placement.points is not None:
        return replace(placement, points=placement.points.taken(kept))
    return replace(placement, intervals=of_ids(placement.intervals, *true_ranges(kept)))


def _tested(placement: Placement, test: Callable[[Int64s, Int64s], Bools]) -> Bools:
    result = np.zeros(len(placement), np.bool_)
    for start in range(0, len(result), _WINDOWS):
        ids = np.arange(start, min(start + _WINDOWS, len(result)))
        result[ids] = test(ids, placement.anchor_slots(ids))
    return result


def enough_rows(placement: Placement) -> Placement:
    """The windows with at least `min_rows=` rows in their spans in time; if there is none, a `NoWindowError`."""
    for time_span in placement.time_spans:
        if time_span.min_rows:
            kept = chosen(placement, partial(_has_rows, placement, time_span))
            if not len(kept):
                raise NoWindowError(
                    f"min_rows= keeps windows with at least {time_span.min_rows} rows in {time_span.named!r}; none of "
                    f"the {len(placement):,} windows has so many. Lower it, or take a longer stretch of time."
                )
            placement = kept
    return placement


def _has_rows(placement: Placement, time_span: TimeSpan, ids: Int64s, anchors: Int64s) -> Bools:
    return time_span.count(placement.stretches(time_span, ids, anchors)) >= time_span.min_rows


def entity_edges(placement: Placement) -> Int64s:
    """The slot at which the first run of each entity begins, and the end of all slots: `(entities + 1,)`."""
    starts, stops = run_edges(placement.slots)
    first_rows, _ = run_rows(placement.slots, placement.stash.rows)
    return np.append(starts, stops[-1:])[np.searchsorted(first_rows, placement.offsets)]


def of_entities(placement: Placement, wanted: Bools) -> Placement:
    """The windows of chosen entities, `(entities,)`; what is made of them later, such as `latest`, keeps to these."""
    chosen = replace(placement, chosen=wanted if placement.chosen is None else wanted & placement.chosen)
    if placement.points is not None:
        return replace(chosen, points=placement.points.taken(wanted[placement.points.entity]))
    edges = entity_edges(placement)
    return replace(chosen, intervals=keep(placement.intervals, edges[:-1][wanted], edges[1:][wanted]))


def numbers_of(entities: Sequence[Any], names: Sequence[Any]) -> list[int]:
    """The numbers of entities by their names, in the order of the names."""
    numbers = {name: k for k, name in enumerate(entities)}
    is_one = is_integer(names) or isinstance(names, str) or (isinstance(names, tuple) and names in numbers)
    if is_one or isinstance(names, Mapping) or not is_listed(names):
        meant = [names] if is_one else [*names] if isinstance(names, Mapping) else [*entities[:2]]
        raise TypeError(f"names must be a list of entities, got {shown(names)}. Write {shown(meant)}.")
    found = [entity_number(numbers, name) for name in (names.tolist() if hasattr(names, "tolist") else names)]
    if not found:
        raise ValueError("names must have at least one entity, got none.")
    return found


def of_named(placement: Placement, names: Sequence[Any]) -> Placement:
    """The windows of the entities with these names; one without any window is warned of."""
    wanted = np.zeros(len(placement.offsets) - 1, np.bool_)
    wanted[numbers_of(placement.stash.entities, names)] = True
    part = of_entities(placement, wanted)
    if len(placement) and not len(part):
        name = placement.stash.entity_at(int(wanted.argmax()))
        warnings.warn(
            f"None of the {len(placement):,} windows is of a chosen entity, such as {name!r}. windows.per_entity() has "
            "the number of each.",
            stacklevel=3,
        )
    return part


def chosen_in(placement: Placement, stash: Stash) -> Bools | None:
    """The entities of another stash that have the names of the chosen ones, `(entities,)`; `None`: all."""
    if placement.chosen is None:
        return None
    names = {name for name, is_chosen in zip(placement.stash.entities, placement.chosen) if is_chosen}
    found = np.fromiter((name in names for name in stash.entities), np.bool_, len(stash.entities))
    if names and not found.any():
        raise NoWindowError(
            f"Windows keep to the entities that `of` or split_entities has chosen, and the other stash has none of "
            f"these {len(names):,}, such as {next(iter(names))!r}. Call on of the windows that they were chosen from, "
            "or load these entities."
        )
    return found


def at_points(placement: Placement, at: Any, closed: str, judged: Sequence[Required], unmatched: str) -> Placement:
    """The windows at the points of a frame; points without one are an error, or dropped with `unmatched="drop"`."""
    points = points_of(placement.stash, at, closed, {span.name for span in placement.shown})
    wanted, refused = len(points), Refused(placement.stash, len(points))
    for time_span in placement.time_spans:
        time_span.table.check_moments(int(points.time.min()), int(points.time.max()), placement.stash.clock)
    if judged and not placement.length:
        raise ValueError("require= checks slots, and spans in time have none. See min_rows= of ts.During.")
    if placement.chosen is not None:
        left = (points.entity >= 0) & ~np.append(placement.chosen, False)[points.entity]
        points = refused.leave_out(points, {"of an entity that `of` or split_entities has left out": left})
    points = placed(placement.stash, placement.slots, points, (placement.history, placement.horizon), refused)
    if judged:
        low, high = incomplete(placement, judged)
        starts = points.slot - placement.history
        inside = np.searchsorted(low, starts, "right") > np.searchsorted(high, starts, "right")
        points = refused.leave_out(points, {"with a missing value that require= does not allow": inside})
    placement = replace(placement, points=points)
    for time_span in placement.time_spans:
        if time_span.min_rows:
            few = ~_tested(placement, partial(_has_rows, placement, time_span))
            points = refused.leave_out(
                points, {f"with fewer than {time_span.min_rows} rows in {time_span.named!r}": few}
            )
            placement = replace(placement, points=points)
    if unmatched == "error":
        refused.check()
    if not len(points):
        raise NoWindowError(f"None of the {wanted:,} rows of at= has a window. See unmatched='error' for the reasons.")
    return placement


def anchored(placement: Placement, where: Where | None) -> Placement:
    """The windows whose anchor (without a horizon: last slot) is at a true row; a `NoWindowError` if there is none."""
    if where is None:
        return placement
    stash, shift = placement.stash, placement.history + placement.label_offset
    mask = array_of(stash[where] if isinstance(where, str) else where, "where")
    if mask.dtype != bool or mask.shape != (stash.rows,):
        name = f"{where!r}, " if isinstance(where, str) else ""
        found = shown(where) if mask.dtype.kind in "OU" else f"{name}{mask.shape} of {mask.dtype}"
        raise ValueError(
            f"where must be a boolean column or ({stash.rows},) booleans, got {found}. Load a condition as a column, "
            "such as columns={'keep': pl.col('x') > 0}, and name it: where='keep'."
        )
    low, high = slot_ranges(placement, *row_ranges(mask.__getitem__, stash.rows))
    kept = keep(placement.intervals, low - shift, high - shift)
    kept = drop(kept, *(edges - shift for edges in empty_slots(placement.slots)))
    if not len(kept):
        raise NoWindowError(
            "where= keeps the windows whose anchor is at a true row; none of the "
            f"{len(placement):,} windows has its anchor at one. See windows.anchors without where=."
        )
    return replace(placement, intervals=kept)


def latest(placement: Placement, judged: Sequence[Required], of: str | None) -> Intervals:
    """One window per entity, anchored after its last row, or after the last row with a value in the column `of`."""
    rows, had = last_rows(placement, of), _with_rows(placement)
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
    past = [
        asked._replace(span=replace(asked.span, stop=min(asked.span.stop, 0)))
        for asked in judged
        if asked.span.start < 0
    ]
    kept = complete(replace(placement, intervals=intervals(starts, np.ones_like(starts), 1)), past)
    newest = replace(placement, intervals=kept)
    absent = had.copy()
    absent[newest.window_entities(np.arange(len(newest)))] = False
    if absent.any() and not _has_warned["short"]:
        _has_warned["short"] = True  # a service would be told at each request
        first = placement.stash.entity_at(int(absent.argmax()))
        warnings.warn(
            f"{np.count_nonzero(absent):,} of {np.count_nonzero(had):,} entities have no latest window, such as "
            f"{first!r}: they have too few consecutive rows before the anchor, or a missing value that require= does "
            "not allow.",
            stacklevel=4,
        )
    _warn_of_ends(newest)
    return kept


def _warn_of_ends(newest: Placement) -> None:
    """Warn of latest windows that end at different times, unless rows are events, which always do."""
    if newest.stash.time is None or newest.slots.frequency is None:
        return
    rows, _ = nearest_rows(newest.slots, newest.anchor_slots(np.arange(len(newest))) - 1)
    ends = newest.times[rows]
    if ended := int(np.count_nonzero(ends < ends.max())):
        first, form = ends.argmin(), newest.stash.clock.format
        name = newest.stash.entity_at(int(newest.entities_at(rows[first])))
        warnings.warn(
            f"{ended:,} of {len(ends):,} series end before {form(int(ends.max()))}, the last time of all; {name!r} "
            f"ends first, at {form(int(ends[first]))}. Their latest windows forecast earlier times, which "
            "windows.anchors gives. To leave such series out, load with filter=.",
            stacklevel=5,
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
    last_rows = placement.offsets[entity + 1] - 1
    cut = runs_at(placement.slots, rows) != runs_at(placement.slots, last_rows)
    if cut.any():
        name = placement.stash.entity_at(int(entity[cut.argmax()]))
        whose = "" if name is None else f" of entity {name!r}"
        raise NoWindowError(
            f"The rows after the last value of {of!r} are its known future, and there is a gap among them{whose}. Take "
            "gaps='mask', which puts empty slots there."
        )
