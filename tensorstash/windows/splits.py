"""Parts of windows, before, between and from cuts."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from tensorstash.common.checks import integer, is_integer, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.native.guide import first_rows
from tensorstash.native.permutation import shuffled
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import count_before, keep
from tensorstash.windows.known_ahead import warn_of_missing
from tensorstash.windows.placement import Placement
from tensorstash.windows.selection import chosen, of_entities
from tensorstash.windows.slots import run_edges, run_rows, runs_at, slots_at, steps_until
from tensorstash.windows.time_spans import TimeSpan

Moment = SupportsIndex | str | date | np.datetime64


def check_timed(stash: Stash, what: str) -> None:
    """Raise `ValueError` for a stash without times."""
    if stash.time is None:
        raise ValueError(f"{what} needs times, and this stash has none. Load it with time=.")


def check_intervals(placement: Placement, what: str, remedy: str) -> None:
    """Raise `ValueError` for windows at given points; `what` needs all windows of a stash."""
    if placement.points is not None:
        raise ValueError(f"{what} needs all windows of a stash, and these are at given points in time. {remedy}")


def entity_edges(placement: Placement) -> Int64s:
    """The slot at which the first run of each entity begins, and the end of all slots: `(entities + 1,)`."""
    starts, stops = run_edges(placement.slots)
    first_rows, _ = run_rows(placement.slots, placement.stash.rows)
    return np.append(starts, stops[-1:])[np.searchsorted(first_rows, placement.offsets)]


def per_entity(placement: Placement) -> dict[str, Int64s]:
    """How many windows each entity has, and the id of its first one; at given points only how many."""
    if placement.points is not None:
        return {"count": np.bincount(placement.points.entity, minlength=len(placement.offsets) - 1)}
    edges = count_before(placement.intervals, entity_edges(placement))
    return {"count": np.diff(edges), "first": edges[:-1]}


@dataclass(frozen=True, slots=True)
class Cut:
    """Where windows are divided: a time for each entity, `(entities,)`, and its first row at or after that time.

    A cut of a stash without times has rows alone.
    """

    rows: Int64s
    moments: Int64s | None


def cut_at(placement: Placement, moments: Int64s | int) -> Cut:
    """A cut at a time of each entity, or at one time."""
    offsets = placement.offsets
    times = np.broadcast_to(np.asarray(moments, np.int64), len(offsets) - 1)
    return Cut(first_rows(placement.times, offsets[:-1], offsets[1:], times), times)


def _cut_at_rows(placement: Placement, rows: Int64s) -> Cut:
    """A cut at the time of a row of each entity, which keeps rows of one time together; or after the last row."""
    if placement.stash.time is None:
        return Cut(rows, None)
    first, stops = placement.offsets[:-1], placement.offsets[1:]
    moments = np.full(len(rows), np.iinfo(np.int64).min)  # of an entity without rows
    inside, behind = rows < stops, (rows == stops) & (first < stops)
    moments[inside] = placement.times[rows[inside]]
    last = placement.times[stops[behind] - 1]
    moments[behind] = last + (last < np.iinfo(np.int64).max)
    return cut_at(placement, moments)


def first_slots(placement: Placement, cut: Cut) -> Int64s:
    """The first slot of each run after a cut, or its end: `(runs,)`. Empty slots between rows have times as well."""
    slots, (low, high) = placement.slots, run_rows(placement.slots, placement.stash.rows)
    entities = placement.entities_at(low)
    row = np.clip(cut.rows[entities], low, high)
    _, stops = run_edges(slots)
    first = np.where(row < high, slots_at(slots, np.minimum(row, high - 1)), stops)
    if cut.moments is None or slots.frequency is None:
        return first
    before = slots_at(slots, np.maximum(row - 1, low))
    which = np.flatnonzero((row > low) & (first - before > 1))
    most, moments = (first - before)[which], cut.moments[entities[which]]
    first[which] = before[which] + steps_until(slots, placement.times, row[which] - 1, most, moments)
    return first


def _shares(fractions: Sequence[float], counts: Int64s) -> list[Int64s]:
    """Each fraction of each count, rounded to the nearest; the fractions ascend between 0 and 1."""
    _check_cuts(fractions)
    inside = all(isinstance(fraction, (float, np.floating)) and 0 < fraction < 1 for fraction in fractions)
    if not inside or any(earlier >= later for earlier, later in pairwise(fractions)):
        raise ValueError(
            f"Fractions must lie in (0, 1) and ascend, got {', '.join(map(shown, fractions))}. They are where to cut: "
            "0.7, 0.9 make parts of 70 %, 20 % and 10 %."
        )
    return [np.floor(counts * fraction + 0.5).astype(np.int64) for fraction in fractions]


def _check_cuts(cuts: Sequence[object]) -> None:
    if listed := [cut for cut in cuts if isinstance(cut, (list, tuple, np.ndarray))]:
        raise ValueError(
            f"Each cut is an argument of its own, got {shown(listed[0])}. Unpack it with a star, as in split(*cuts)."
        )


def parts_at_times(placement: Placement, cuts: Sequence[Moment]) -> list[Placement]:
    """The parts before, between and from times, which ascend."""
    check_timed(placement.stash, "split")
    _check_cuts(cuts)
    if fractions := [cut for cut in cuts if isinstance(cut, (float, np.floating))]:
        raise ValueError(
            f"Cuts must be times, got {fractions[0]!r}. To cut at a fraction of the rows of each entity, use "
            "split_fraction."
        )
    moments = [placement.stash.clock.parse(cut) for cut in cuts]
    if any(earlier >= later for earlier, later in pairwise(moments)):
        raise ValueError(f"Cuts must ascend, got {', '.join(map(str, cuts))}.")
    parts = _parts_of(placement, [cut_at(placement, moment) for moment in moments])
    _warn_of_empty(placement, parts, _between_moments(placement, moments))
    warn_of_missing([(f"Part {k} of {len(parts)}", parts[0], part) for k, part in enumerate(parts[1:], 2)])
    return parts


def _warn_of_empty(placement: Placement, parts: Sequence[Placement], reason: Callable[[int], str | None]) -> None:
    """Warn of parts without a window, with the reason of each that has one."""
    for k, part in enumerate(parts):
        if len(placement) and not len(part) and (why := reason(k)):
            warnings.warn(f"Part {k + 1} of {len(parts)} has no window: {why}", stacklevel=4)


def _between_moments(placement: Placement, moments: Sequence[int]) -> Callable[[int], str | None]:
    """Why part k is empty: a cut outside the times of the data, or cuts between which no window lies."""
    points, form = placement.points, placement.stash.clock.format
    first, last = placement.stash.time_range
    if points is not None and len(points):
        first, last = int(points.time.min()), int(points.time.max())
    bounds = [None, *moments, None]

    def reason(k: int) -> str | None:
        low, high = bounds[k], bounds[k + 1]
        cut, where = None, ""
        if high is not None and first is not None and high <= first:
            cut, where = high, "not after the first"
        elif low is not None and last is not None and low > last:
            cut, where = low, "after the last"
        if cut is None or first is None or last is None:
            return _none_lies(placement, *(bound if bound is None else form(bound) for bound in (low, high)))
        return f"the cut {form(cut)} is {where} time of the data, whose times go from {form(first)} to {form(last)}."

    return reason


def _none_lies(placement: Placement, low: str | None, high: str | None) -> str | None:
    """Why a first or last part is empty although its cut lies in the data.

    One between two cuts has none, because it may be meant as a pause between training and validation.
    """
    if low and high:
        return None
    what = "its whole horizon" if placement.horizon else "all of its slots"
    if placement.points is not None or not placement.spans:
        what = "its time and whole horizon" if placement.horizon else "its time"
    if any(time_span.is_ahead for time_span in placement.time_spans):
        what += " and spans in time"
    where = f"from {low} on" if low else f"before {high}"
    return f"none of the {len(placement):,} windows has {what} {where}. Choose other cuts, or shorter windows."


def parts_at_shares(placement: Placement, fractions: Sequence[float]) -> list[Placement]:
    """The parts before, between and from fractions of the rows of each entity."""
    if placement.stash.known is not None:
        raise ValueError(
            "split_fraction goes by rows in the order of time, and this stash has several versions of a time. Cut at "
            "times: split(...)."
        )
    first, counts = placement.offsets[:-1], np.diff(placement.offsets)
    shares = _shares(fractions, counts)
    parts = _parts_of(placement, [_cut_at_rows(placement, first + rows) for rows in shares])
    edges = [None, *(f"the fraction {fraction} of the rows" for fraction in fractions), None]
    _warn_of_empty(placement, parts, lambda k: _none_lies(placement, edges[k], edges[k + 1]))
    warn_of_missing([(f"Part {k} of {len(parts)}", parts[0], part) for k, part in enumerate(parts[1:], 2)])
    return parts


def parts_of_entities(placement: Placement, fractions: Sequence[float], seed: int) -> list[Placement]:
    """Parts that share no entity: all entities are shuffled by the seed and cut at fractions."""
    if not is_integer(seed):
        raise ValueError(f"seed must be an integer, got {seed!r}.")
    count = len(placement.offsets) - 1
    place = np.empty(count, np.int64)  # of each entity in the shuffled order
    place[shuffled(count, integer(seed, "seed"), 0)(np.arange(count))] = np.arange(count)
    cuts = [0, *map(int, _shares(fractions, np.array(count))), count]
    parts = [of_entities(placement, (low <= place) & (place < high)) for low, high in pairwise(cuts)]
    _warn_of_empty(
        placement,
        parts,
        lambda k: (
            f"none of its {cuts[k + 1] - cuts[k]:,} entities, of {count:,} in all, has one. Choose other fractions."
        ),
    )
    return parts


def _parts_of(placement: Placement, cuts: Sequence[Cut]) -> list[Placement]:
    """Part k: the windows that lie from cut k-1 on and before cut k; histories may reach back across a cut."""
    slots = [first_slots(placement, cut) for cut in cuts]
    if placement.points is not None:
        bounds = pairwise([None, *zip(cuts, slots), None])
        parts = [chosen(placement, partial(_between_cuts, placement, low, high)) for low, high in bounds]
    else:
        if not placement.horizon:  # all slots lie in a part, and those before a run in that of its first row: nothing
            # was observed in them
            starts, lead = run_edges(placement.slots)[0], placement.slots.lead
            slots = [np.where(first == starts + lead, starts, first) for first in slots]
        first = placement.history if placement.horizon else 0
        edges = pairwise([None, *slots, None])
        parts = [between(placement, low, high, first, placement.length - 1) for low, high in edges]
    for time_span in placement.time_spans:
        if time_span.is_ahead:
            for k, cut in enumerate(cuts):
                parts[k] = chosen(parts[k], partial(_ends_before, parts[k], time_span, cut))
    return parts


Bound = tuple[Cut, Int64s] | None  # a cut and the first slot of each run after it


def _between_cuts(placement: Placement, low: Bound, high: Bound, ids: Int64s, anchors: Int64s) -> Bools:
    points, inside = placement.points, np.ones(len(ids), np.bool_)
    assert points is not None
    times, entities = points.time[ids], points.entity[ids]
    if low is not None and low[0].moments is not None:
        inside &= times >= low[0].moments[entities]
    if high is not None and high[0].moments is not None:
        inside &= times < high[0].moments[entities]
        if placement.horizon:
            runs = runs_at(placement.slots, placement.label_rows(anchors))
            inside &= anchors + placement.horizon <= high[1][runs]
    return inside


def _ends_before(placement: Placement, time_span: TimeSpan, cut: Cut, ids: Int64s, anchors: Int64s) -> Bools:
    """Whether spans in time end before a cut; one without rows counts too, because it shows that there are none."""
    assert cut.moments is not None
    _, stops = time_span.moved(placement.window_times(ids, anchors))
    # a stop in a unit of its own, rounded up to that of the windows: a cut may be the lowest integer
    return -(-stops // time_span.table.window_ticks) <= cut.moments[placement.window_entities(ids)]


def between(placement: Placement, low: Int64s | None, high: Int64s | None, first: int, last: int) -> Placement:
    """The windows whose slot `first` is at or after `low` and whose slot `last` is before `high`; both count from 0."""
    starts, stops = run_edges(placement.slots)
    lowest = starts if low is None else np.clip(low - first, starts, stops)
    highest = stops if high is None else np.clip(high - last, lowest, stops)
    return replace(placement, intervals=keep(placement.intervals, lowest, highest))
