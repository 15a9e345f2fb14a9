"""Selections of windows: those without missing values (`require`), at true rows (`where`), at points in time (`at`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.errors import NoWindowError
from tensorstash.windows.at import points_of
from tensorstash.windows.intervals import Intervals, drop, keep, of_ids, true_ranges
from tensorstash.windows.placement import Placement
from tensorstash.windows.points import Refused, placed
from tensorstash.windows.require import Required, incomplete, of_history
from tensorstash.windows.row_ranges import row_ranges, slot_ranges
from tensorstash.windows.time_spans import TimeSpan

_WINDOWS = 1 << 16  # tested at a time

Where = str | Sequence[bool] | NDArray[np.bool_] | torch.Tensor


def complete(placement: Placement, judged: Sequence[Required], *, may_forecast: bool = False) -> Intervals:
    """The windows that lack no more values than `require=` allows; if there is none, a `NoWindowError`.

    With `may_forecast` there may be none, if the history of some window lacks no more.
    """
    whole = placement.intervals
    if not judged:
        return whole
    kept = drop(whole, *incomplete(placement, judged))
    if may_forecast and not len(kept):
        complete(placement, of_history(judged))
    elif not len(kept):
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


def anchored(placement: Placement, where: Where | None) -> Placement:
    """The windows whose anchor (without a horizon: last slot) is at a true row; a `NoWindowError` if there is none."""
    if where is None:
        return placement
    stash, shift = placement.stash, placement.history + placement.label_offset
    mask = array_of(stash[where] if isinstance(where, str) else where, "where")
    if mask.dtype != bool or mask.shape != (stash.rows,):
        found = shown(where) if mask.dtype.kind in "OU" else f"{mask.shape} of {mask.dtype}"
        raise ValueError(
            f"where must be a boolean column or ({stash.rows},) booleans, got {found}. Load a condition as a column, "
            "such as columns={'keep': pl.col('x') > 0}, and name it: where='keep'."
        )
    low, high = slot_ranges(placement.slots, *row_ranges(mask.__getitem__, stash.rows))
    kept = keep(placement.intervals, low - shift, high - shift)
    if not len(kept):
        raise NoWindowError(
            "where= keeps the windows whose anchor is at a true row; none of the "
            f"{len(placement):,} windows has its anchor at one. See windows.anchors without where=."
        )
    return replace(placement, intervals=kept)


def at_points(placement: Placement, at: Any, closed: str, judged: Sequence[Required], unmatched: str) -> Placement:
    """The windows at the points of a frame; points without one are an error, or dropped with `unmatched="drop"`."""
    points = points_of(placement.stash, at, closed, {span.name for span in placement.spans})
    refused = Refused(placement.stash, points)
    for time_span in placement.time_spans:
        time_span.table.check_moments(int(points.time.min()), int(points.time.max()), placement.stash.clock)
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
        raise NoWindowError(
            f"None of the {len(refused.every):,} rows of at= has a window. See unmatched='error' for the reasons."
        )
    return placement
