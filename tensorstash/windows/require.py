"""`require=`: which slots of windows must hold a value, and where windows start that lack too many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from tensorstash.common.checks import is_flag, names_in, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.gather.span import Span
from tensorstash.stash.missing import missing_rows
from tensorstash.windows.intervals import Ranges, cut_ranges, true_ranges, union
from tensorstash.windows.placement import Placement
from tensorstash.windows.row_ranges import missing_ranges, slot_ranges
from tensorstash.windows.slots import Slots, empty_slots, rows_from, run_edges
from tensorstash.windows.spans import unknown_name

Require = Sequence[str] | Mapping[str, float | Literal["rows"]]

_BLOCK = 1 << 20  # rows scanned, and starts judged, at a time


class Required(NamedTuple):
    """What `require=` asks of a span of one column."""

    span: Span
    share: float  # of the slots that must hold a value
    of_rows: bool  # whether only slots with a row count

    def may_lack(self, slots: Any) -> Any:
        """How many of so many slots may be without a value."""
        return np.floor(slots * (1 - self.share) + 1e-9)


def required(placement: Placement, require: Require | None) -> list[Required]:
    """What `require=` asks of spans, which it names by themselves or by their columns, over the whole window."""
    stash, named, found = placement.stash, {span.name: span for span in placement.slot_spans}, []
    in_time = {span.name for span in placement.spans} - named.keys()
    for name, share in _shares(require).items():
        if name in in_time or not placement.length:
            raise ValueError(f"require= checks slots, and {name!r} has none. See min_rows= of ts.During.")
        if name not in named and name not in stash:
            raise unknown_name(name, stash, dict.fromkeys([*named, *stash]), "the window", "span or column")
        span = named.get(name) or Span(name, name, -placement.history, placement.horizon)
        of_rows = isinstance(share, str)
        found += [
            Required(replace(span, column=one, variates=None), 1.0 if of_rows else float(share), of_rows)
            for one in span.columns
        ]
    return found


def of_history(judged: Sequence[Required]) -> list[Required]:
    """What is asked of the slots before the anchor."""
    return [
        asked._replace(span=replace(asked.span, stop=min(asked.span.stop, 0)))
        for asked in judged
        if asked.span.start < 0
    ]


def _shares(require: Any) -> Mapping[str, float | str]:
    """The share or the word of each name; a list means that each slot holds a value."""
    if not isinstance(require, Mapping):
        return dict.fromkeys([] if require is None else names_in(require, "require"), 1.0)
    names_in([*require], "require")
    for name, share in require.items():
        is_share = isinstance(share, (int, float, np.floating, np.integer)) and not is_flag(share) and 0 <= share <= 1
        if not is_share and not (isinstance(share, str) and share == "rows"):
            raise ValueError(
                'The shares of require= must lie from 0 to 1, or be "rows" for each slot that has a row, got '
                f"{shown(share)} for {name!r}. Four fifths of the slots are {{{name!r}: 0.8}}."
            )
    return require


def incomplete(placement: Placement, judged: Sequence[Required]) -> Ranges:
    """The ranges of slots at which windows start that lack too many values in one of the spans.

    An empty slot lacks a value, except after a run, where no value is known yet.
    """
    low, high = map(np.concatenate, zip(*(_starts(placement, asked) for asked in judged)))
    return union(low, high)


def _starts(placement: Placement, asked: Required) -> Ranges:
    span, slots, none = asked.span, placement.slots, np.empty(0, np.int64)
    if asked.may_lack(len(span)) >= len(span):
        return none, none
    empty = (none, none) if asked.of_rows else empty_slots(slots)
    # a window that starts at slot s has slot j of the span at slot s + history + start + j * step
    shift = span.start + placement.history
    if len(span) > 1 and (span.step > 1 or asked.may_lack(len(span))):
        lacking = partial(_lacking, slots, missing_rows(placement.stash, span.column), empty)
        low, high = map(np.concatenate, zip(*_too_few(placement, asked, lacking, 0, slots.total)))
        return union(low - shift, high - shift)
    low, high = _with_empty(slots, missing_ranges(placement.stash, span.column), empty)
    return union(low - shift - len(span) + 1, high - shift)


def _with_empty(slots: Slots, rows: Ranges, empty: Ranges) -> Ranges:
    """The slots of ranges of rows, and empty ones."""
    low, high = slot_ranges(slots, *rows)
    return union(np.concatenate([low, empty[0]]), np.concatenate([high, empty[1]]))


def _lacking(slots: Slots, missing: Callable[[slice], Bools] | None, empty: Ranges, low: int, high: int) -> Ranges:
    """The ranges of slots within `[low, high)` that hold no value."""
    first, stop = rows_from(slots, np.array([low, high])).tolist()
    true = np.zeros(0, np.bool_) if missing is None else missing(slice(first, stop))
    some = slice(np.searchsorted(empty[1], low, "right"), np.searchsorted(empty[0], high))
    lows, highs = _with_empty(slots, true_ranges(true, first), (empty[0][some], empty[1][some]))
    return np.maximum(lows, low), np.minimum(highs, high)


def _too_few(
    placement: Placement, asked: Required, lacking: Callable[[int, int], Ranges], low: int, high: int
) -> Iterator[Ranges]:
    """The ranges of slots within `[low, high)` from which a span has too few values.

    The verdict can change only where the span holds an edge of a range without values, so only there it is judged.
    """
    reach = len(asked.span) * asked.span.step - asked.span.step  # slots from its first one to its last one
    first, stop = rows_from(placement.slots, np.array([low, high]))
    if stop - first <= _BLOCK:
        lows, highs = lacking(low, high + reach)
        edges = np.stack([lows, highs], 1).ravel()
        edges = edges[(edges > low) & (edges < high + reach)]
        starts, stops = union(np.maximum(edges - reach, low), np.minimum(edges, high))
        if (stops - starts).sum() <= _BLOCK:
            without = lows < highs - reach
            yield lows[without], highs[without] - reach
            if len(edges):
                yield _by_sums(placement, asked, reach, (starts, stops), edges, begins=bool(lows[0] == low))
            return
    middle = (low + high) // 2
    yield from _too_few(placement, asked, lacking, low, middle)
    yield from _too_few(placement, asked, lacking, middle, high)


def _by_sums(
    placement: Placement, asked: Required, reach: int, within: Ranges, edges: Int64s, *, begins: bool
) -> Ranges:
    """The slots of some ranges from which a span has too few values, by sums over what it holds from them.

    Slots lack values between edges 0 and 1, 2 and 3, and so on; if they do so from before the ranges on, as it
    `begins`, between 1 and 2, and so on.
    """
    (starts, stops), step = within, asked.span.step
    widths = stops - starts
    ends = np.cumsum(widths + reach)
    first = ends - widths - reach  # the ranges lie one behind the other, each with the slots that spans reach from it
    marks = np.zeros(-(-ends[-1] // step) * step, np.bool_)
    k = np.searchsorted(starts, np.maximum(edges - reach, starts[0]), "right") - 1
    marks[first[k] + edges - starts[k]] = True
    marks[0] = begins
    lacks = np.logical_xor.accumulate(marks)
    sums = np.cumsum(lacks.reshape(-1, step), axis=0, dtype=np.int32).ravel()
    count, slots = sums[reach:] - sums[:-reach] + lacks[:-reach], len(asked.span)
    if placement.slots.tail:  # slots after the run are not counted
        at = np.arange(len(count)) + np.repeat(starts - first, widths + reach)[: len(count)]
        run_starts, run_stops = run_edges(placement.slots)
        after = at - (run_stops - placement.slots.tail)[np.searchsorted(run_starts, at, "right") - 1]
        slots = np.clip(-(after // step), 0, slots)
    bounds = np.stack([first, first + widths], 1).ravel()
    low, high = cut_ranges(bounds, *true_ranges(count > asked.may_lack(slots)))
    k = np.searchsorted(first, low, "right") - 1
    inside = low < (first + widths)[k]
    moved = (starts - first)[k[inside]]
    return low[inside] + moved, high[inside] + moved
