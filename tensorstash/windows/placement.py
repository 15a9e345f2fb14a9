"""Where the windows of one stash are: their slots, and their rows in spans in time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.gather.memory import Filling, Memory, never_empty
from tensorstash.gather.rows import Stretches
from tensorstash.gather.span import Span
from tensorstash.native.guide import find
from tensorstash.stash.stash import Stash
from tensorstash.windows.fills import slot_fills, time_field_fills
from tensorstash.windows.intervals import Intervals, locate
from tensorstash.windows.points import Points
from tensorstash.windows.slots import Slots, nearest_rows, run_edges, run_rows, times_at
from tensorstash.windows.time_spans import Candidates, TimeSpan

if TYPE_CHECKING:
    from tensorstash.windows.strides import Strides


@dataclass(frozen=True, eq=False)
class Cover:
    """Which rows windows of `cover` show in one of their spans: slots `[low, high)` of each run, ascending."""

    span: Span
    low: Int64s
    high: Int64s


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the windows of one stash are: each has `history + horizon` consecutive slots, and rows in time spans."""

    stash: Stash
    slot_spans: tuple[Span, ...]
    history: int  # slots before the anchor; if all spans are `During`, 1, or 0 with `at=`
    horizon: int  # slots from the anchor on
    slots: Slots
    fills: Mapping[str, torch.Tensor] | None  # the value of empty slots by column; `None`: every slot is a row
    strides: "Strides"  # how windows were counted, where a stride counts them
    intervals: Intervals  # of the slots at which windows start; empty for windows at given points
    time_spans: tuple[TimeSpan, ...]  # the spans in time
    is_whole: bool  # whether each window holds a whole run
    points: Points | None = None
    chosen: Bools | None = None  # `(entities,)`, those that windows may be of; `None`: all
    cover: Cover | None = None  # what they show once; `None`: they are not of `cover`

    def __len__(self) -> int:
        return len(self.intervals) if self.points is None else len(self.points)

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans; those in time count rows back from the end of their stretch."""
        return tuple(span for span, _ in self.spans_and_stashes)

    @property
    def spans_and_stashes(self) -> tuple[tuple[Span, Stash], ...]:
        """All spans, and the stash that each takes its column from."""
        in_time = ((span, part.stash) for part in self.time_spans for span in part.spans)
        return (*((span, self.stash) for span in self.slot_spans), *in_time)

    @property
    def whole_spans(self) -> tuple[Span, ...]:
        """The spans in slots that hold whole columns, not each column of a pack as a row."""
        return tuple(span for span in self.slot_spans if span.variates is None)

    @property
    def length(self) -> int:
        """Slots of a window."""
        return self.history + self.horizon

    @property
    def label_offset(self) -> int:
        """Slots from a window's anchor to the slot that gives its entity and time: without a horizon, its last."""
        return 0 if self.horizon else -1

    @property
    def offsets(self) -> Int64s:
        """`(entities + 1,)`: the first row of each entity, and at last the number of rows."""
        return self.stash.offsets.numpy()

    @property
    def times(self) -> Int64s:
        """`(rows,)`, of a stash with times."""
        assert self.stash.time is not None
        return self.stash.time.numpy()

    @property
    def memory(self) -> Memory:
        """What windows are gathered from."""
        filling = None
        if self.fills is not None:
            computed = time_field_fills(self.stash, self.slot_spans, self.slots)
            filling = Filling(self.slots.fragments, self.slots.total, self.fills, computed)
        return Memory(self.stash, never_empty(self.stash), filling)

    def over(self, stashes: Mapping[Stash, Stash]) -> "Placement":
        """The same windows over stashes with the same rows, in place of those that they are over."""
        stash = stashes.get(self.stash, self.stash)
        fills = None if self.fills is None else slot_fills(stash, self.slot_spans, self.slots)
        parts = tuple(time_span.over(stashes) for time_span in self.time_spans)
        return replace(self, stash=stash, fills=fills, time_spans=parts)

    def anchor_slots(self, ids: Int64s) -> Int64s:
        """The slot of each window's anchor, for ids of any shape that are known to lie in `[0, len(self))`."""
        if self.points is not None:
            return self.points.slot[ids]
        slots = locate(self.intervals, ids)
        slots += self.history
        return slots

    def label_rows(self, anchors: Int64s) -> Int64s:
        """The row that gives each window its entity, any shape, by anchor slots; at an empty slot the nearest row."""
        return nearest_rows(self.slots, anchors + self.label_offset)[0]

    def window_entities(self, ids: Int64s) -> Int64s:
        """The index into `stash.entities` of windows, by ids of any shape."""
        if self.points is not None:
            return self.points.entity[ids].astype(np.int64)
        return self._entity_of_interval.take(find(self.intervals.guide, ids)).astype(np.int64)

    @property
    def entity_edges(self) -> Int64s:
        """The slot at which the first run of each entity begins, and the end of all slots: `(entities + 1,)`."""
        starts, stops = run_edges(self.slots)
        first_rows, _ = run_rows(self.slots, self.stash.rows)
        return np.append(starts, stops[-1:])[np.searchsorted(first_rows, self.offsets)]

    @cached_property
    def _entity_of_interval(self) -> Int32s:
        """The entity of each interval, whose windows lie in one run."""
        return np.searchsorted(self.entity_edges[1:], self.intervals.first, "right").astype(np.int32)

    def window_times(self, ids: Int64s, anchors: Int64s) -> Int64s:
        """The time of each window, of any shape, by their ids and the slots of their anchors; without times its row."""
        if self.points is not None:
            return self.points.time[ids]
        if self.stash.time is None:
            return self.label_rows(anchors)
        return times_at(self.slots, self.times, anchors + self.label_offset)

    def stretches(self, time_span: TimeSpan, ids: Int64s, anchors: Int64s) -> Stretches | Candidates:
        """Where the rows of each window in a time span are, by the ids and the slots of the anchors, of any shape."""
        entities, times = self.window_entities(ids), self.window_times(ids, anchors)
        stop = None  # known if the stretch ends where the history does, and every slot is a row
        if self.points is not None and time_span.closed == self.points.closed and self.slots.are_rows:
            stop = None if time_span.stop.steps or time_span.table.name is not None else anchors
        return time_span.find(entities, times, stop)

    def repeated(self, cover: Cover, ids: Int64s, anchors: Int64s) -> Bools:
        """Which slots of the span of a cover a window before shows, or are not to be shown: `(windows, time)`."""
        first = anchors + cover.span.start
        run = np.searchsorted(cover.high, first, "right")
        shown = np.where(ids > 0, self.anchor_slots(np.maximum(ids - 1, 0)) + cover.span.stop, 0)
        slots = first[:, None] + np.arange(len(cover.span))
        is_before: Bools = slots < np.maximum(shown, cover.low[run])[:, None]
        return is_before | (slots >= cover.high[run][:, None])

    def entities_at(self, rows: Int64s) -> Int64s:
        """The index into `stash.entities` of rows, of any shape."""
        return np.searchsorted(self.offsets, rows, "right") - 1

    def __getstate__(self) -> dict[str, Any]:
        """Without the cached property, which is computed again."""
        return {name: value for name, value in self.__dict__.items() if name != "_entity_of_interval"}
