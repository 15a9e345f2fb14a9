"""Windows are made here: from `Arguments` and a stash to a `Placement`, and `on`, `latest` and `cover` of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorstash.common.calendar import Calendar, GivenStep, Step
from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Bools
from tensorstash.common.frequency import Duration
from tensorstash.common.text import type_text
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import own_calendar
from tensorstash.windows.at import Unmatched
from tensorstash.windows.cover import covering
from tensorstash.windows.during import During, Side
from tensorstash.windows.entities import chosen_in, of_entities
from tensorstash.windows.fills import slot_fills
from tensorstash.windows.gaps import Gaps, stash_runs
from tensorstash.windows.identity import tables_of
from tensorstash.windows.intervals import intervals, no_intervals, windows_in
from tensorstash.windows.latest import has_latest, latest
from tensorstash.windows.lost import too_short, warn_of_absent, warn_of_gaps, warn_of_require
from tensorstash.windows.placement import Placement
from tensorstash.windows.require import Require, Required, required
from tensorstash.windows.runs import Runs, read_calendar
from tensorstash.windows.selection import Where, anchored, at_points, complete, enough_rows
from tensorstash.windows.slots import lead_and_tail, number_slots, run_edges, times_at, with_tail
from tensorstash.windows.splits import GivenTime, check_divisible, check_intervals
from tensorstash.windows.strides import Strides, align_text, aligned, checked_strides
from tensorstash.windows.tables import check_used, checked_tables
from tensorstash.windows.time_spans import time_spans
from tensorstash.windows.traits import check_same
from tensorstash.windows.whole import to_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What windows were asked for: the arguments of `Windows` that are not data."""

    slot_spans: tuple[Span, ...]
    in_time: Mapping[str, During]
    min_history: int | None
    min_horizon: int | None
    strides: Strides
    gaps: Gaps
    frequency: GivenStep | Step | None
    tolerance: Duration | None
    require: Require | None
    where: Where | None
    closed: Side
    unmatched: Unmatched
    is_whole: bool  # whether spans reach to the end of the run, their stop: the longest one there may be

    is_masked: bool = False  # `where` was booleans of the rows of one stash, which are not kept

    @property
    def horizon(self) -> int:
        """Slots of a window from the anchor on."""
        return max([0, *(span.stop for span in self.slot_spans)])

    @property
    def may_be_empty(self) -> bool:
        """Whether some slots of windows may have no row."""
        is_padded = self.min_history is not None or self.min_horizon is not None
        return self.gaps == "mask" or is_padded or any(span.draw is not None for span in self.slot_spans)

    def history(self, at: Any) -> int:
        """Slots before the anchor. Without spans in slots a window is one row, or with `at=` a point in time."""
        return max([0 if self.slot_spans or at is not None else 1, *(-span.start for span in self.slot_spans)])

    def check(self, stash: Stash, at: Any) -> None:
        """Raise `ValueError` for arguments that contradict each other, the stash, or points in time."""
        if stash.known is not None and (at is None or self.slot_spans):
            raise ValueError(
                f"Rows with known times, {stash.known_name!r}, are versions of a time, which cannot be anchors or fill "
                "slots. Give the times to look from as at=, with spans in time alone, ts.During(...), or take the "
                "stash as a table of other windows, tables=."
            )
        if at is None and (self.closed, self.unmatched) != ("left", "error"):
            raise ValueError(
                "closed= and unmatched= must be given with at=. For a span in time, see closed= of ts.During."
            )
        strides = dict.fromkeys(self.strides.given, True)
        if at is not None:
            _refuse(
                {"where": self.where is not None} | strides,
                "{} must be left out with at=, which has a row for each window. Choose rows of the frame.",
            )
        if self.is_whole:
            _refuse(
                strides | {"at": at is not None},
                "A span to the end of its run makes one window a run, from its first slot on, so {} must be left out. "
                "For several windows a run give its stop a number.",
            )
        if not self.slot_spans:
            slots = ("frequency", "tolerance", "min_history", "min_horizon")
            _refuse(
                {"gaps": self.gaps == "mask"} | {name: getattr(self, name) is not None for name in slots},
                "{} is about slots, and windows of spans in time alone have none. Leave it out; for a least number of "
                "rows see min_rows= of ts.During.",
            )

    def without_rows(self) -> "Arguments":
        """The arguments without what belongs to the rows of one stash."""
        kept = replace(self, frequency=None)  # that of the placement says what was found
        return kept if self.where is None or isinstance(self.where, str) else replace(kept, where=None, is_masked=True)

    def elsewhere(self, placement: Placement, at: Any, step: Step | None) -> "Arguments":
        """The arguments for other data than that of a placement, with a step of time."""
        if at is None and placement.points is not None:
            raise ValueError("These windows are at given points, and other data have others. Give them as at=.")
        if at is not None:
            return replace(self, frequency=step, strides=Strides(), where=None, is_masked=False)
        if self.is_masked:
            raise ValueError(
                "These windows were chosen by where= with booleans for the rows of their own stash, which other data "
                "do not have. Load the booleans as a column, and name it as where=."
            )
        return replace(self, frequency=step)


def check_stash(stash: object) -> None:
    """Raise `TypeError` if `stash` is not a `Stash`."""
    if not isinstance(stash, Stash):
        raise TypeError(
            f"stash must be a stash, ts.load(...), got {type_text(stash)}. For data of several machines, use "
            "ts.cluster.windows(...)."
        )


def placement_of(
    arguments: Arguments,
    stash: Stash,
    at: Any,
    tables: Mapping[str, Stash],
    chosen: Bools | None = None,
    *,
    may_forecast: bool = False,
) -> Placement:
    """The windows of a stash, of its `chosen` entities, or those at the points of a frame.

    With `may_forecast` there may be none, if `latest` has one.
    """
    arguments.check(stash, at)
    slot_spans, gaps = arguments.slot_spans, arguments.gaps
    runs = stash_runs(stash, gaps, arguments.frequency, arguments.tolerance, in_slots=bool(slot_spans))
    if arguments.is_whole:
        wide = to_width(slot_spans, stash, runs, chosen, joined=gaps == "mask", is_kept=may_forecast)
        arguments = replace(arguments, slot_spans=wide, strides=Strides(wide[0].stop))
    unplaced = replace(_unplaced(arguments, stash, runs, at, tables), chosen=chosen)
    requirements = required(unplaced, arguments.require)
    if at is not None:
        placement = at_points(unplaced, at, arguments.closed, requirements, arguments.unmatched)
    else:
        try:
            placement = _all_windows(unplaced, runs, requirements, may_forecast=may_forecast)
            placement = placement if chosen is None else of_entities(placement, chosen)
            placement = enough_rows(anchored(placement, arguments.where)) if len(placement) else placement
        except NoWindowError:
            if not may_forecast or arguments.is_whole or not has_latest(unplaced, requirements):
                raise
            placement = unplaced
    _check_reach(placement)
    return placement


def _refuse(given: Mapping[str, bool], text: str) -> None:
    """Raise `ValueError` for the first argument that is given although others exclude it."""
    for name, is_given in given.items():
        if is_given:
            raise ValueError(text.format(f"{name}="))


def _unplaced(arguments: Arguments, stash: Stash, runs: Runs, at: Any, tables: Mapping[str, Stash]) -> Placement:
    """The slots and spans of windows, of which none is in them yet."""
    history, horizon = arguments.history(at), arguments.horizon
    lead, tail = lead_and_tail(arguments.min_history, arguments.min_horizon, history, horizon)
    slots = number_slots(runs, stash, joined=arguments.gaps == "mask", lead=lead, tail=tail)
    side = arguments.closed if at is not None else "left" if horizon else "right"
    return Placement(
        stash=stash,
        slot_spans=arguments.slot_spans,
        history=history,
        horizon=horizon,
        slots=slots,
        fills=slot_fills(stash, arguments.slot_spans, slots) if arguments.may_be_empty else None,
        intervals=no_intervals(),
        time_spans=time_spans(stash, arguments.in_time, tables, side),
        strides=checked_strides(
            arguments.strides, stash, in_steps=bool(arguments.slot_spans) and arguments.gaps != "ignore"
        ),
        is_whole=arguments.is_whole,
    )


def _all_windows(
    placement: Placement, runs: Runs, requirements: Sequence[Required], *, may_forecast: bool
) -> Placement:
    """Every window that lacks no required value; raises `NoWindowError`, and warns if many windows are lost.

    With `may_forecast`, none is needed if a run holds the history of a window that starts after it, or if only the
    horizons lack required values.
    """
    stride, (starts, stops) = placement.strides.stride, run_edges(placement.slots)
    counts = windows_in(stops - starts, placement.length, stride)
    every = replace(placement, intervals=intervals(starts, counts, stride))
    if not len(every):
        # the tail of a run has no rows, and the window that is to be forecast needs rows for its history
        if may_forecast and int((stops - starts).max(initial=0)) >= placement.history + placement.slots.tail:
            return every
        raise too_short(placement, runs)
    warn_of_gaps(every, runs)
    on_stride = aligned(every)
    if not len(on_stride):
        if may_forecast:
            return on_stride
        raise NoWindowError(
            f"Windows are counted by strides, and with stride {stride}{align_text(on_stride)} no run has one: "
            f"{on_stride.strides.remedy}."
        )
    kept = replace(on_stride, intervals=complete(on_stride, requirements, may_forecast=may_forecast))
    if not len(kept):  # only with may_forecast, or `complete` had raised
        return kept
    warn_of_require(kept, on_stride, requirements)
    warn_of_absent(kept, on_stride, every)
    return kept


def _check_reach(placement: Placement, *slots: int) -> None:
    """Raise `DataError` if the calendar lacks the time of a slot of `ts.calendar`, or of one of the given slots."""
    if not isinstance(placement.slots.frequency, Calendar):
        return
    about = placement.stash.about
    timed = [span for span in placement.slot_spans if any(about(name).calendar for name in span.columns)]
    edges = {*slots, *(span.slots[0][k] for span in timed for k in (0, -1))}
    windows = placement.intervals  # the first and the last window of each tell for all
    is_at = placement.points is not None
    ids = np.arange(len(placement)) if is_at else np.concatenate([windows.first_ids, windows.guide.ends - 1])
    for edge in edges:
        times_at(placement.slots, placement.times, placement.anchor_slots(ids) + edge)


def arguments_on(  # noqa: PLR0917  the arguments of `Windows.on`
    arguments: Arguments, placement: Placement, stash: Stash, at: Any, tables: object, frequency: GivenStep | None
) -> tuple[Arguments, dict[str, Stash], Bools | None]:
    """What `placement_of` takes for windows of other data than that of their placement: all but the stash and `at`.

    Raises unless what the windows show means the same there.
    """
    check_stash(stash)
    own, given = tables_of(placement), checked_tables(tables)
    check_used(given, own)
    others = own | given
    check_same(placement, stash, others)
    step = _step_on(placement, stash, frequency)
    return arguments.elsewhere(placement, at, step), others, chosen_in(placement, stash)


def _step_on(placement: Placement, stash: Stash, given: GivenStep | None) -> Step | None:
    """The step of time of windows on other data: their own, or a calendar that continues it."""
    step = placement.slots.frequency
    if not isinstance(step, Calendar):
        if given is not None:
            raise ValueError(
                f"frequency= of on continues the calendar of windows, and these have none; got {shown(given)}. Leave "
                "it out: the step of time is kept."
            )
        return step
    longer = own_calendar(stash) if given is None else read_calendar(stash, given)
    if longer is not None and longer.continues(step):
        return longer
    if given is not None:
        raise ValueError(
            f"frequency= of on continues the calendar of these windows, so it begins with the same {len(step.times):,} "
            f"times, up to {step.clock.format(int(step.times[-1]))}; the one given does not. Make new windows with it."
        )
    return step


def latest_placement(arguments: Arguments, placement: Placement, of: str | None) -> Placement:
    """The newest window of each entity, of all entities and rows of the stash of a placement."""
    check_intervals(placement, "latest", "Give the times at which to forecast as at=.")
    check_divisible(placement, "latest")
    slots = with_tail(placement.slots, placement.stash, placement.horizon)
    every = replace(placement, slots=slots, strides=Strides(), cover=None)
    newest = latest(every, required(every, arguments.require), of)
    fills = slot_fills(placement.stash, placement.slot_spans, slots)
    found = enough_rows(replace(every, fills=fills, intervals=newest))
    _check_reach(found, placement.horizon - 1)
    return found


def covering_placement(
    arguments: Arguments, placement: Placement, span: str | None, start: GivenTime | None, stop: GivenTime | None
) -> Placement:
    """Windows that show each row of a time range once, of all entities of the stash of a placement."""
    check_intervals(placement, "cover", "Leave out at=.")
    if arguments.require is not None or any(time_span.min_rows for time_span in placement.time_spans):
        warn("cover shows every row, so require= and min_rows= leave out no window.")
    _, tail = lead_and_tail(arguments.min_history, arguments.min_horizon, placement.history, placement.horizon)
    every = replace(placement, strides=Strides(), fills=placement.fills if arguments.may_be_empty else None)
    if tail != placement.slots.tail:  # those of `latest` have another one
        every = replace(every, slots=with_tail(placement.slots, placement.stash, tail))
    return covering(every, span, start, stop)
