"""`cover`: windows that show each row once, piece behind piece, to score rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError, unknown
from tensorstash.gather.span import Span
from tensorstash.stash.printed import entity_text
from tensorstash.windows.cuts import cut_at, first_slots
from tensorstash.windows.intervals import Ranges, drop, intervals
from tensorstash.windows.lost import with_fewer
from tensorstash.windows.placement import Cover, Placement
from tensorstash.windows.slots import empty_slots, rows_from, run_edges, run_rows, slots_at
from tensorstash.windows.splits import GivenTime, check_timed


def covering(placement: Placement, name: str | None, start: GivenTime | None, stop: GivenTime | None) -> Placement:
    """Windows whose slots of a span show the rows of a time range, those of one run behind each other."""
    span = _consecutive(placement, name)
    wanted = _wanted(placement, start, stop)
    rows = [rows_from(placement.slots, edges) for edges in _within_reach(placement, span, wanted)]
    _warn_of_missing(placement, wanted, rows)
    shown = rows[0] < rows[1]
    low = slots_at(placement.slots, rows[0][shown])
    high = slots_at(placement.slots, rows[1][shown] - 1) + 1
    offset, length = placement.history + span.start, len(span)
    starts, stops = (edges[shown] for edges in run_edges(placement.slots))
    counts = -((low - high) // length)
    last = low - offset + (counts - 1) * length
    with_end = stops - placement.slots.tail - length - offset  # ends with the run
    moved = np.minimum(last, np.clip(with_end, starts, stops - placement.length))
    is_moved = (moved < last).astype(np.int64)
    first = np.stack([low - offset, moved], 1).ravel()
    counts = np.stack([counts - is_moved, is_moved], 1).ravel()
    pieces = intervals(first, counts, length)
    without, until = (edges - offset for edges in empty_slots(placement.slots))
    in_vain = until - without >= length  # from these slots on a window may show no row
    kept = drop(pieces, without[in_vain], until[in_vain] - length + 1)
    return replace(placement, intervals=kept, cover=Cover(span, low, high))


def _consecutive(placement: Placement, name: str | None) -> Span:
    """The span of consecutive slots with a name; without one, the only one."""
    spans = {span.name: span for span in placement.spans}
    fit = [one.name for one in placement.slot_spans if one.step == 1 and one.draw is None]
    if name is not None and (not isinstance(name, str) or name not in spans):
        raise unknown(name, spans, "the window", "span")
    asked = fit if name is None else [name]
    if len(asked) != 1 or asked[0] not in fit:
        raise ValueError(
            "cover takes one span of consecutive slots, without a step, a drawn start or a stretch of time, got "
            f"{'no name' if name is None else spans[name]}; these windows have {', '.join(map(repr, fit)) or 'none'}. "
            f"Name one, as in cover({fit[-1] if fit else 'all'!r}), or add one, such as 'all': ('y', -96, 0)."
        )
    return spans[asked[0]]


def _wanted(placement: Placement, start: GivenTime | None, stop: GivenTime | None) -> Ranges:
    """The slots of each run from a time on and before another one; none of entities that are not chosen."""
    (first, end), slots, clock = run_edges(placement.slots), placement.slots, placement.stash.clock
    low, high = first, end = first + slots.lead, end - slots.tail
    if start is not None or stop is not None:
        check_timed(placement.stash, "cover at start= or stop=")
    since = None if start is None else clock.parse(start, "start, a time and not a slot,")
    until = None if stop is None else clock.parse(stop, "stop, a time and not a slot,")
    if since is not None and until is not None and since >= until:
        raise ValueError(f"start must be before stop, got {start} and {stop}.")
    if since is not None:
        first = np.clip(first_slots(placement, cut_at(placement, since)), low, high)
    if until is not None:
        end = np.clip(first_slots(placement, cut_at(placement, until)), first, high)
    if placement.chosen is not None:
        runs, _ = run_rows(slots, placement.stash.rows)
        end = np.where(placement.chosen[placement.entities_at(runs)], end, first)
    if not (rows_from(slots, first) < rows_from(slots, end)).any():
        times = [time for time in placement.stash.time_range if time is not None]
        known = f" The times of the stash go from {' to '.join(map(clock.format, times))}." if times else ""
        raise NoWindowError(f"cover shows rows from start= on and before stop=; there is none.{known}")
    return first, end


def _within_reach(placement: Placement, span: Span, wanted: Ranges) -> Ranges:
    """Of these slots those that the span of a window can show, in each run."""
    starts, stops = run_edges(placement.slots)
    offset, last = placement.history + span.start, stops - placement.length
    low = np.clip(wanted[0], starts + offset, wanted[1])
    high = np.clip(last + offset + len(span), low, wanted[1])
    return low, np.where(last < starts, low, high)


def _warn_of_missing(placement: Placement, wanted: Ranges, shown: Sequence[Int64s]) -> None:
    """Warn of rows that no window can show, with the reason of the first; if there is no window, that is an error."""
    stash = placement.stash
    (first, end), (low, high) = (rows_from(placement.slots, edges) for edges in wanted), shown
    missing = (end - first) - (high - low)
    if not missing.any():
        return
    run = int((missing > 0).argmax())
    row = int((high if first[run] == low[run] < high[run] else first)[run])
    when = f"row {row:,}" if stash.time is None else f"the row at {stash.clock.format(int(placement.times[row]))}"
    of = f" of {entity_text(stash, int(placement.entities_at(np.array(row))))}" if stash.entity_names else ""
    why = (
        f"The first is {when}{of}, where windows need more slots of the run than it has. Give a lower "
        f"{with_fewer(placement)}, or cover a span over the whole window."
    )
    total, every = int(missing.sum()), int((end - first).sum())
    if total == every:
        raise NoWindowError(f"cover shows rows in windows, and none of these {every:,} rows is in one. {why}")
    warn(f"{total:,} of {every:,} rows are in no window of cover. {why}")
