"""Parts of windows, before, between and from cuts."""

from collections.abc import Container, Sequence
from datetime import date
from functools import partial
from itertools import accumulate, pairwise
from typing import SupportsIndex

import numpy as np

from tensorstash.common.checks import integer, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError
from tensorstash.native.permutation import shuffled
from tensorstash.stash.stash import Stash
from tensorstash.windows.cuts import Cut, between, cut_at, cut_at_rows, cut_at_slots, first_slots, slots_of_rows
from tensorstash.windows.entities import of_entities
from tensorstash.windows.intervals import count_before
from tensorstash.windows.known_ahead import warn_of_missing
from tensorstash.windows.placement import Placement
from tensorstash.windows.selection import chosen
from tensorstash.windows.slots import run_edges, runs_at
from tensorstash.windows.spans import slot_count
from tensorstash.windows.time_spans import TimeSpan

# a time as users write it: text, a date, or an integer in the unit of the times
GivenTime = SupportsIndex | str | date | np.datetime64


def check_timed(stash: Stash, what: str) -> None:
    """Raise `ValueError` for a stash without times."""
    if stash.time is None:
        raise ValueError(f"{what} needs times, and this stash has none. Load it with time=.")


def check_intervals(placement: Placement, what: str, remedy: str) -> None:
    """Raise `ValueError` for windows at given points; `what` needs all windows of a stash."""
    if placement.points is not None:
        raise ValueError(f"{what} needs all windows of a stash, and these are at given points in time. {remedy}")


def check_divisible(placement: Placement, what: str) -> None:
    """Raise `ValueError` for windows of whole series; `what` goes by times within them."""
    if placement.is_whole:
        raise ValueError(
            f"{what} goes by times within series, and each of these windows holds all of its run. Divide by entity, "
            "with split_entities or `of`, or give the stop of spans a number."
        )


def per_entity(placement: Placement) -> dict[str, Int64s]:
    """How many windows each entity has, and the id of its first one; at given points only how many."""
    if placement.points is not None:
        return {"count": np.bincount(placement.points.entity, minlength=len(placement.offsets) - 1)}
    edges = count_before(placement.intervals, placement.entity_edges)
    return {"count": np.diff(edges), "first": edges[:-1]}


def _shares(fractions: Sequence[float], counts: Int64s) -> list[Int64s]:
    """Each fraction of each count, rounded to the nearest; the fractions ascend between 0 and 1."""
    are_floats = all(isinstance(fraction, (float, np.floating)) for fraction in fractions)
    if not are_floats or not all(earlier < later for earlier, later in pairwise([0, *fractions, 1])):
        raise ValueError(
            f"Fractions must lie in (0, 1) and ascend, got {', '.join(map(shown, fractions))}. They are where to cut, "
            "each an argument: 0.7, 0.9 make parts of 70 %, 20 % and 10 %."
        )
    return [np.floor(counts * fraction + 0.5).astype(np.int64) for fraction in fractions]


def divided(placement: Placement, cuts: Sequence[Cut]) -> list[Placement]:
    """The parts before, between and from cuts; those without windows, or with most targets missing, are warned of."""
    check_divisible(placement, "split")
    parts = _parts_of(placement, cuts)
    _warn_of_empty(placement, parts, {0, len(cuts)})  # one between cuts may be a pause before validation
    warn_of_missing([(f"Part {k} of {len(parts)}", parts[0], part) for k, part in enumerate(parts[1:], 2)])
    return parts


def at_times(placement: Placement, cuts: Sequence[GivenTime]) -> list[Cut]:
    """Cuts at times, which ascend."""
    check_timed(placement.stash, "split")
    if listed := [cut for cut in cuts if isinstance(cut, (list, tuple, np.ndarray))]:
        raise ValueError(f"Each cut is an argument of its own, got {shown(listed[0])}. Write a star: split(*cuts).")
    if fractions := [cut for cut in cuts if isinstance(cut, (float, np.floating))]:
        raise ValueError(
            f"Cuts must be times, got {fractions[0]!r}. To cut at a fraction of the rows of each entity, use "
            "split_fraction."
        )
    moments = [placement.stash.clock.parse(cut) for cut in cuts]
    if any(earlier >= later for earlier, later in pairwise(moments)):
        raise ValueError(f"Cuts must ascend, got {', '.join(map(str, cuts))}.")
    return [cut_at(placement, moment) for moment in moments]


def _warn_of_empty(placement: Placement, parts: Sequence[Placement], needed: Container[int]) -> None:
    """Warn of parts without a window, of those that are needed, by their numbers from 0."""
    times = [time for time in placement.stash.time_range if time is not None]
    known = f"; the times of the stash go from {' to '.join(map(placement.stash.clock.format, times))}" if times else ""
    for k, part in enumerate(parts):
        if len(placement) and not len(part) and k in needed:
            warn(
                f"Part {k + 1} of {len(parts)} has no window: none of the {len(placement):,} windows lies in it, with "
                f"its whole horizon{known}. Choose other cuts or fractions, or shorter windows."
            )


def at_shares(placement: Placement, fractions: Sequence[float]) -> list[Cut]:
    """Cuts after fractions of the rows of each entity."""
    _check_versions(placement, "split_fraction")
    first, counts = placement.offsets[:-1], np.diff(placement.offsets)
    return [cut_at_rows(placement, first + rows) for rows in _shares(fractions, counts)]


def at_ends(placement: Placement, lengths: Sequence[SupportsIndex], last: Int64s) -> list[Cut]:
    """Cuts before the last parts of each entity, whose lengths in slots end with its row in `last`, if it has one."""
    _check_versions(placement, "split_last")
    if not lengths:
        raise ValueError("split_last needs the length of at least one part, in slots, such as split_last(28).")
    slots = [slot_count(1, length, "A length of split_last", 1 << 31) for length in lengths]
    counts = [*accumulate(reversed(slots))][::-1]  # from each cut to the end
    return [cut_at_slots(placement, slots_of_rows(placement, last), 1 - count) for count in counts]


def check_longest(placement: Placement, last: Int64s, cut: Cut, count: int) -> None:
    """Raise `NoWindowError` if a cut, so many slots before the last row of each entity, is before all rows of all."""
    which = np.flatnonzero(last >= 0)
    first = placement.offsets[which]
    start = first if placement.stash.time is None else placement.times[first]
    if len(which) and not (cut[which] >= start).any():
        raise NoWindowError(
            f"The parts of split_last must fit into at least one series; they have {count:,} slots, and the longest "
            "series has fewer. Take shorter parts."
        )


def _check_versions(placement: Placement, what: str) -> None:
    if placement.stash.known is not None:
        raise ValueError(
            f"{what} goes by rows in the order of time, and this stash has several versions of a time. Cut at times: "
            "split(...)."
        )


def parts_of_entities(placement: Placement, fractions: Sequence[float], seed: int) -> list[Placement]:
    """Parts that share no entity: all entities are shuffled by the seed and cut at fractions."""
    count, number = len(placement.offsets) - 1, integer(seed, "seed")
    position = np.empty(count, np.int64)  # of each entity in the shuffled order
    position[shuffled(count, number, 0)(np.arange(count))] = np.arange(count)
    cuts = [0, *map(int, _shares(fractions, np.array(count))), count]
    parts = [of_entities(placement, (low <= position) & (position < high)) for low, high in pairwise(cuts)]
    _warn_of_empty(placement, parts, range(len(parts)))
    return parts


def _parts_of(placement: Placement, cuts: Sequence[Cut]) -> list[Placement]:
    """Part k: the windows that lie from cut k-1 on and before cut k; histories may reach back across a cut."""
    slots = [first_slots(placement, cut) for cut in cuts]
    if placement.points is not None:
        numbers = range(len(cuts) + 1)
        parts = [chosen(placement, partial(_is_in_part, placement, number, cuts, slots)) for number in numbers]
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


def _is_in_part(  # noqa: PLR0917  the last two vary
    placement: Placement, number: int, cuts: Sequence[Cut], slots: Sequence[Int64s], ids: Int64s, anchors: Int64s
) -> Bools:
    """Whether windows at points in time are of a part: their time lies in it, and no horizon reaches behind it."""
    times, entities = placement.window_times(ids, anchors), placement.window_entities(ids)
    is_inside: Bools = np.ones(len(ids), np.bool_)
    if number > 0:
        is_inside &= times >= cuts[number - 1][entities]
    if number < len(cuts):
        is_inside &= times < cuts[number][entities]
        if placement.horizon:
            runs = runs_at(placement.slots, placement.label_rows(anchors))
            is_inside &= anchors + placement.horizon <= slots[number][runs]
    return is_inside


def _ends_before(placement: Placement, time_span: TimeSpan, cut: Cut, ids: Int64s, anchors: Int64s) -> Bools:
    """Whether spans in time end before a cut; one without rows counts too, because it shows that there are none."""
    _, stops = time_span.moved(placement.window_times(ids, anchors))
    # a stop in a unit of its own, rounded up to that of the windows: a cut may be the lowest integer
    return -(-stops // time_span.table.window_ticks) <= cut[placement.window_entities(ids)]
