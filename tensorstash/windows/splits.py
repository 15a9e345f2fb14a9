"""Parts of windows, before, between and from cuts, and the folds of a backtest."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from typing import SupportsIndex, cast

import numpy as np

from tensorstash.common.checks import at_least, flag, integer, is_integer, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.frequency import Duration, Frequency, frequency, is_zero
from tensorstash.errors import DataError
from tensorstash.native.guide import first_rows
from tensorstash.native.permutation import shuffled
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import count_before, keep
from tensorstash.windows.known_ahead import warn_of_missing
from tensorstash.windows.placement import Placement
from tensorstash.windows.selection import chosen, of_entities
from tensorstash.windows.shift import FARTHEST, Shift
from tensorstash.windows.slots import run_edges, run_rows, runs_at, slots_at, steps_until, times_at
from tensorstash.windows.time_spans import TimeSpan

Moment = SupportsIndex | str | date | np.datetime64
Length = SupportsIndex | str | timedelta  # of time: slots, or a duration


def _check_timed(stash: Stash, what: str) -> None:
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


def _cut_at_times(placement: Placement, moments: Int64s) -> Cut:
    offsets = placement.offsets
    return Cut(first_rows(placement.times, offsets[:-1], offsets[1:], moments), moments)


def _cut_at_time(placement: Placement, moment: int) -> Cut:
    return _cut_at_times(placement, np.full(len(placement.offsets) - 1, moment))


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
    return _cut_at_times(placement, moments)


def _first_slots(placement: Placement, cut: Cut) -> Int64s:
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
    _check_apart(fractions)
    inside = all(isinstance(fraction, (float, np.floating)) and 0 < fraction < 1 for fraction in fractions)
    if not inside or any(earlier >= later for earlier, later in pairwise(fractions)):
        raise ValueError(
            f"Fractions must lie in (0, 1) and ascend, got {', '.join(map(shown, fractions))}. They are where to cut: "
            "0.7, 0.9 make parts of 70 %, 20 % and 10 %."
        )
    return [np.floor(counts * fraction + 0.5).astype(np.int64) for fraction in fractions]


def _check_apart(cuts: Sequence[object]) -> None:
    if listed := [cut for cut in cuts if isinstance(cut, (list, tuple, np.ndarray))]:
        raise ValueError(
            f"Each cut is an argument of its own, got {shown(listed[0])}. Unpack it with a star, as in split(*cuts)."
        )


def parts_at_times(placement: Placement, cuts: Sequence[Moment]) -> list[Placement]:
    """The parts before, between and from times, which ascend."""
    _check_timed(placement.stash, "split")
    _check_apart(cuts)
    if fractions := [cut for cut in cuts if isinstance(cut, (float, np.floating))]:
        raise ValueError(
            f"Cuts must be times, got {fractions[0]!r}. To cut at a fraction of the rows of each entity, use "
            "split_fraction."
        )
    moments = [placement.stash.clock.parse(cut) for cut in cuts]
    if any(earlier >= later for earlier, later in pairwise(moments)):
        raise ValueError(f"Cuts must ascend, got {', '.join(map(str, cuts))}.")
    parts = _parts_of(placement, [_cut_at_time(placement, moment) for moment in moments])
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
    slots = [_first_slots(placement, cut) for cut in cuts]
    if placement.points is not None:
        parts = _parts_by_points(placement, cuts, slots)
    elif placement.horizon:
        parts = _parts_by_horizons(placement, slots)
    else:
        parts = _parts_by_histories(placement, slots)
    for time_span in placement.time_spans:
        if time_span.is_ahead:
            for k, cut in enumerate(cuts):
                parts[k] = chosen(parts[k], partial(_ends_before, parts[k], time_span, cut))
    return parts


def _parts_by_horizons(placement: Placement, slots: Sequence[Int64s]) -> list[Placement]:
    """The windows whose whole horizon lies in a part, which is bounded by the first slots of each run after cuts."""
    bounds = pairwise([None, *slots, None])
    return [_between(placement, low, high, placement.history, placement.length - 1) for low, high in bounds]


def _parts_by_histories(placement: Placement, slots: Sequence[Int64s]) -> list[Placement]:
    """Without a horizon, the windows of which all slots lie in a part.

    The empty slots before a run belong to the part of its first row, because nothing was observed in them.
    """
    starts, lead = run_edges(placement.slots)[0], placement.slots.lead
    bounds = pairwise([None, *(np.where(first == starts + lead, starts, first) for first in slots), None])
    return [_between(placement, low, high, 0, placement.length - 1) for low, high in bounds]


Bound = tuple[Cut, Int64s] | None  # a cut and the first slot of each run after it


def _parts_by_points(placement: Placement, cuts: Sequence[Cut], slots: Sequence[Int64s]) -> list[Placement]:
    """The windows at given points whose time, and the end of their horizon, lies in a part."""
    bounds = pairwise([None, *zip(cuts, slots), None])
    return [chosen(placement, partial(_between_cuts, placement, low, high)) for low, high in bounds]


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


def folds(
    placement: Placement, count: SupportsIndex, step: Length, gap: Length, *, expanding: bool
) -> list[tuple[Placement, Placement]]:
    """The training and the test windows of each fold, the earliest fold first."""
    _check_timed(placement.stash, "folds")
    check_intervals(placement, "folds", "Cut with split.")
    if any(time_span.is_ahead for time_span in placement.time_spans):
        raise ValueError("folds go by slots, and a span in time of these windows reaches into the future. Use split.")
    expanding = flag(expanding, "expanding")
    number, by = at_least(1, count, "count"), _shift(placement, step, 1, "step")
    pause = _shift(placement, gap, 0, "gap")
    _check_length(by, number, f"{number} x step={step!r}")
    _check_length(pause, 1, f"gap={gap!r}")
    start, stop = _anchor_range(placement)
    anchor = placement.history + placement.label_offset
    made = []
    for k in range(number):
        cut = _moved(stop, by, k - number)
        times = _moved(start, by, k), _moved(cut, pause, -1), cut, _moved(stop, by, k + 1 - number)
        train_start, train_stop, low, high = (_first_slots(placement, _cut_at_time(placement, time)) for time in times)
        train = _between(placement, None if expanding else train_start, train_stop, anchor, placement.length - 1)
        test = _between(placement, low, high, anchor, anchor)
        for part, name in ((train, "training"), (test, "test")):
            if not len(part):
                form = placement.stash.clock.format
                raise DataError(
                    f"A fold must have windows in both parts; fold {k} of {number}, with its cut at {form(cut)}, has "
                    f"no {name} window. Anchors lie in [{form(start)}, {form(stop)}). Take fewer folds, or another "
                    "step= or gap=."
                )
        made.append((train, test))
    warn_of_missing([(f"The test part of fold {k} of {number}", *pair) for k, pair in enumerate(made)])
    return made


def _moved(time: int, by: Shift, times: int) -> int:
    moved = by.step.advance_one(time, by.steps * times)
    if moved is None:
        far = "after" if by.steps * times > 0 else "before"
        raise DataError(
            f"The cuts of folds must be times that fit into 64 bits; {abs(by.steps * times):,} x {by.step.text!r} "
            f"{far} {by.step.clock.format(time)} does not. Convert the times to a coarser unit, or leave rows so far "
            "away out with filter=."
        )
    return moved


def _shift(placement: Placement, length: Length, least: int, what: str) -> Shift:
    """A number of slots, each a step of the frequency, or a duration as polars writes it."""
    clock, slot_step = placement.stash.clock, placement.slots.frequency
    if not least and is_zero(length):
        return Shift(str(length), Frequency("", "ticks", 1, 0, clock), 0)
    if not is_integer(length):
        return Shift(str(length), frequency(cast("Duration", length), clock, None, what), 1)
    slots = at_least(least, length, what)
    if slot_step is None and slots:
        raise ValueError(
            f"{what} in slots needs the step of time, which gaps='ignore' and spans in time alone lack. Give a "
            "duration."
        )
    return Shift(str(length), slot_step or _tick(placement.stash), slots)


def _tick(stash: Stash) -> Frequency:
    return Frequency("1 tick", "ticks", 1, 0, stash.clock)


def _check_length(shift: Shift, times: int, text: str) -> None:
    if times * shift.most_ticks > FARTHEST:
        raise ValueError(
            f"The cuts of folds must lie within 2**61 ticks before the last anchor; {text} is longer. Take fewer "
            "folds, or a shorter step= or gap=."
        )


def _anchor_range(placement: Placement) -> tuple[int, int]:
    """The time of the first anchor, and that of the slot after the last anchor with a whole horizon."""
    windows = placement.intervals
    run_starts, run_stops = run_edges(placement.slots)
    first, first_ids = windows.first, windows.first_ids
    run = np.searchsorted(run_starts, first, "right") - 1
    whole = (run_stops[run] - placement.slots.tail - placement.length - first) // windows.stride + 1
    last = first + windows.stride * (np.minimum(whole, windows.ends - first_ids) - 1)
    anchor, step = placement.history + placement.label_offset, placement.slots.frequency
    first_times = times_at(placement.slots, placement.times, first + anchor)
    last_times = times_at(placement.slots, placement.times, last[whole > 0] + anchor)
    if not len(last_times):
        raise DataError("Folds need windows with a whole horizon; none of these windows has one.")
    newest = int(last_times.max())
    return int(first_times.min()), _moved(newest, Shift("", step or _tick(placement.stash), 1), 1)


def _between(placement: Placement, low: Int64s | None, high: Int64s | None, first: int, last: int) -> Placement:
    """The windows whose slot `first` is at or after `low` and whose slot `last` is before `high`; both count from 0."""
    starts, stops = run_edges(placement.slots)
    lowest = starts if low is None else np.clip(low - first, starts, stops)
    highest = stops if high is None else np.clip(high - last, lowest, stops)
    return replace(placement, intervals=keep(placement.intervals, lowest, highest))
