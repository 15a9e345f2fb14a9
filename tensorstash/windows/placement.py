"""Where windows are: their slots in one stash, and the windows of several stashes as one sequence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Bools, Int32s, Int64s, as_array
from tensorstash.gather.gather import GatherPlan, compile_plan
from tensorstash.gather.memory import Filling, Memory, by_source, never_empty
from tensorstash.gather.rows import InSlots, Picked, Rows, Stretches
from tensorstash.gather.span import Span, draws_of
from tensorstash.gather.variates import VariatePlan, variate_plans
from tensorstash.native.guide import find, find_and_locate, guide
from tensorstash.native.kernel import Guide
from tensorstash.stash.stash import Stash
from tensorstash.windows.fills import calendar_fills
from tensorstash.windows.intervals import Intervals, locate
from tensorstash.windows.located import Located
from tensorstash.windows.points import Points
from tensorstash.windows.slots import Slots, nearest_rows, times_at
from tensorstash.windows.time_spans import Candidates, TimeSpan, picked_of

_BLOCK = 1 << 17  # intervals computed at a time


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the windows of one stash are: each has `history + horizon` consecutive slots, and rows in time spans."""

    stash: Stash
    spans: tuple[Span, ...]  # in slots
    history: int  # slots before the anchor; if all spans are `During`, 1, or 0 with `at=`
    horizon: int  # slots from the anchor on
    slots: Slots
    fills: Mapping[str, torch.Tensor] | None  # the value of empty slots by column; `None`: every slot is a row
    intervals: Intervals  # of the slots at which windows start; empty for windows at given points
    points: Points | None = None
    time_spans: tuple[TimeSpan, ...] = ()  # the spans in time
    chosen: Bools | None = None  # `(entities,)`, those that windows may be of; `None`: all

    def __len__(self) -> int:
        return len(self.intervals) if self.points is None else len(self.points)

    @property
    def shown(self) -> tuple[Span, ...]:
        """All spans; those in time count rows back from the end of their stretch."""
        return tuple(span for span, _ in self.sources)

    @property
    def sources(self) -> tuple[tuple[Span, Stash], ...]:
        """All spans as in `shown`, and the stash that each takes its column from."""
        in_time = ((span, part.stash) for part in self.time_spans for span in part.shown)
        return (*((span, self.stash) for span in self.spans), *in_time)

    @property
    def whole_spans(self) -> tuple[Span, ...]:
        """The spans in slots that hold whole columns, not each column of a pack as a row."""
        return tuple(span for span in self.spans if span.variates is None)

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
            computed = calendar_fills(self.stash, self.spans, self.slots)
            filling = Filling(self.slots.fragments, self.slots.total, self.history, self.horizon, self.fills, computed)
        return never_empty(Memory(self.stash, lambda: self.stash.blocks, filling))

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

    @cached_property
    def _entity_of_interval(self) -> Int32s:
        """The entity of each interval, by its last window: the windows of one lie in one run."""
        base, ends, stride = self.intervals.base, self.intervals.ends, self.intervals.stride
        entities = np.empty(len(base), np.int32)
        for start in range(0, len(base), _BLOCK):
            some = slice(start, start + _BLOCK)
            anchors = base[some] + stride * (ends[some] - 1) + self.history
            entities[some] = self.entities_at(self.label_rows(anchors))
        return entities

    def window_times(self, ids: Int64s, anchors: Int64s) -> Int64s:
        """The time of each window, of any shape, by their ids and the slots of their anchors."""
        if self.points is not None:
            return self.points.time[ids]
        return times_at(self.slots, self.times, anchors + self.label_offset)

    def anchors(self, ids: Int64s) -> dict[str, Int64s]:
        """The entity of each window, by ids `(n,)`, and the time, if there are times."""
        entities = {"entity": self.window_entities(ids)}
        if self.stash.time is None:
            return entities
        return entities | {"time": self.window_times(ids, self.anchor_slots(ids))}

    def stretches(self, time_span: TimeSpan, ids: Int64s, anchors: Int64s) -> Stretches | Candidates:
        """Where the rows of each window in a time span are, by the ids and the slots of the anchors, of any shape."""
        entities, times = self.window_entities(ids), self.window_times(ids, anchors)
        stop = None  # known if the stretch ends where the history does, and every slot is a row
        if self.points is not None and time_span.closed == self.points.closed and self.slots.are_rows:
            stop = None if time_span.stop.steps or time_span.table.name is not None else anchors
        return time_span.find(entities, times, stop)

    def entities_at(self, rows: Int64s) -> Int64s:
        """The index into `stash.entities` of rows, of any shape."""
        return np.searchsorted(self.offsets, rows, "right") - 1

    def __getstate__(self) -> dict[str, Any]:
        """Without the cached property, which is computed again."""
        return {name: value for name, value in self.__dict__.items() if name != "_entity_of_interval"}


@dataclass(frozen=True, eq=False)
class Chain:
    """The windows of one or several stashes, numbered one after the other. All have the same spans."""

    placements: tuple[Placement, ...]

    def __len__(self) -> int:
        return sum(map(len, self.placements))

    def locate(self, ids: Int64s) -> Located:
        """Where windows are, by ids `(k,)` that are known to lie in `[0, len(self))`."""
        if len(self.placements) == 1:  # looking up the placement would double the cost
            return self._with_stretches(Located(None, ids, self.placements[0].anchor_slots(ids)))
        if any(placement.points is not None for placement in self.placements):
            source, anchors = find(self._ends, ids), np.empty_like(ids)
            for k, which in by_source(source):
                anchors[which] = self.placements[k].anchor_slots(ids[which] - self._first[k])
        else:
            stride, more = self._stride
            interval, anchors = find_and_locate(self._bases, stride, ids)
            source = self._owner.take(interval)
            if more is not None:
                anchors += more[source] * (ids - self._first[source])
        return self._with_stretches(Located(source, ids, anchors))

    def within(self, located: Located) -> Int64s:
        """The ids of windows in their own placements."""
        return located.ids if located.source is None else located.ids - self._first[located.source]

    def _with_stretches(self, located: Located) -> Located:
        made = []
        for number in range(len(self.placements[0].time_spans)):
            kind = Candidates if self.placements[0].time_spans[number].is_picked else Stretches
            arrays = kind(*(np.empty_like(located.ids) for _ in range(3)))
            for placement, which, ids, anchors in self.parts(located):
                part = placement.stretches(placement.time_spans[number], ids, anchors)
                for array, values in zip(arrays, part):
                    array[which] = values
            made.append(arrays)
        return located._replace(stretches=tuple(made)) if made else located

    @cached_property
    def _ends(self) -> Guide:
        return guide(np.cumsum([len(placement) for placement in self.placements])[:, None])

    @cached_property
    def _first(self) -> Int64s:
        """(placements,) the id of the first window of each."""
        return np.append(0, self._ends.ends[:-1])

    @cached_property
    def _bases(self) -> Guide:
        """The intervals of all placements, each with the anchor that window 0 of the chain would have in it."""
        records = [placement.intervals.guide.records for placement in self.placements]
        first, (stride, _) = self._first, self._stride
        moved = np.stack([first, self.placements[0].history - stride * first], 1)
        return guide(np.concatenate(records) + np.repeat(moved, [*map(len, records)], axis=0))

    @cached_property
    def _owner(self) -> Int32s:
        """The placement of each of these intervals."""
        counts = [len(placement.intervals.base) for placement in self.placements]
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @cached_property
    def _stride(self) -> tuple[int, Int64s | None]:
        """The stride of the first placement, and by how much the others' are larger; `None` if all are equal."""
        strides = np.array([placement.intervals.stride for placement in self.placements], np.int64)
        more = strides - strides[0]
        return int(strides[0]), more if more.any() else None

    def parts(self, located: Located) -> Iterator[tuple[Placement, Any, Int64s, Int64s]]:
        """Each placement that occurs, the index of its windows, their ids in it and the slots of their anchors."""
        for k, which in by_source(located.source):
            yield self.placements[k], which, located.ids[which] - self._first[k], located.anchors[which]

    def entities(self, located: Located) -> Int64s:
        """The entity of each window in its own stash."""
        entities = np.empty_like(located.anchors)
        for placement, which, ids, _ in self.parts(located):
            entities[which] = placement.window_entities(ids)
        return entities

    def moments(self, located: Located) -> Int64s:
        """The anchor time of each window, or without a time column the row of its anchor."""
        moments = np.empty_like(located.anchors)
        for placement, which, ids, anchors in self.parts(located):
            timed = placement.stash.time is not None
            moments[which] = placement.window_times(ids, anchors) if timed else placement.label_rows(anchors)
        return moments

    def labels(self, located: Located) -> dict[str, NDArray[Any]]:
        """The other columns of the `at=` frame, in the shape of the ids."""
        first = self.placements[0].points
        names = {} if first is None else first.labels
        labels = {name: np.empty(located.ids.shape, values.dtype) for name, values in names.items()}
        for placement, which, ids, _ in self.parts(located) if labels else ():
            if placement.points is not None:
                rows = placement.points.row[ids]
                for name, values in labels.items():
                    values[which] = placement.points.labels[name][rows]
        return labels

    @cached_property
    def static(self) -> dict[str, torch.Tensor]:
        """The static columns, with the entities of all stashes one after the other."""
        first, *more = (placement.stash.static for placement in self.placements)
        if not more:
            return first
        every = {name: [as_array(part[name]) for part in (first, *more)] for name in first}  # by numpy, as in `beside`
        return {name: torch.from_numpy(np.concatenate(parts)).view(first[name].dtype) for name, parts in every.items()}

    def static_rows(self, located: Located, entities: Int64s) -> Int64s:
        """The rows of static columns that windows have, by the entities in their own stashes."""
        return entities if located.source is None else entities + self._first_entity[located.source]

    @cached_property
    def _first_entity(self) -> Int64s:
        return np.cumsum([0, *(len(placement.offsets) - 1 for placement in self.placements[:-1])])

    @cached_property
    def plans(self) -> list[GatherPlan]:
        """How batches are gathered, for each kind of rows that windows have; compiled for the first batch."""
        return [compile_plan(spans, memories) for spans, memories in self.spans_and_memories()]

    @cached_property
    def plan_apart(self) -> GatherPlan:
        """How windows in slots are gathered into a buffer for each span."""
        ((spans, memories),) = self.spans_and_memories()
        return compile_plan(spans, memories, together=False)

    def spans_and_memories(self) -> list[tuple[Sequence[Span], list[Memory]]]:
        """The spans in slots, and those of each stretch of time, and what they are gathered from."""
        first, parts = self.placements[0], list[tuple[Sequence[Span], list[Memory]]]()
        if first.whole_spans:
            parts.append((first.whole_spans, [placement.memory for placement in self.placements]))
        for k, time_span in enumerate(first.time_spans):
            parts.append((time_span.spans, [part.time_spans[k].memory for part in self.placements]))
        return parts

    def stashes(self) -> list[list[Stash]]:
        """Those of the memories of `spans_and_memories`."""
        parts = [[placement.stash for placement in self.placements]] if self.placements[0].whole_spans else []
        every = zip(*(placement.time_spans for placement in self.placements))
        return parts + [[time_span.stash for time_span in time_spans] for time_spans in every]

    def in_time(self, located: Located) -> list[Stretches | Picked]:
        """The rows of windows in each span in time; those that do not follow each other are picked now."""
        every = zip(located.stretches, zip(*(placement.time_spans for placement in self.placements)))
        return [
            found if isinstance(found, Stretches) else picked_of(parts, found, located.source) for found, parts in every
        ]

    def rows(self, located: Located) -> list[Rows]:
        """The rows of windows for each of the plans."""
        rows: list[Rows] = [InSlots(located.anchors, located.skips)] if self.has_slots else []
        return [*rows, *self.in_time(located)] if located.stretches else rows

    @cached_property
    def has_slots(self) -> bool:
        """Whether the first plan is that of spans in slots; the others are those of spans in time."""
        return bool(self.placements[0].whole_spans)

    @cached_property
    def variates(self) -> tuple[VariatePlan, ...]:
        """How spans of `ts.each` are gathered."""
        spans = self.placements[0].spans
        if all(span.variates is None for span in spans):
            return ()
        return variate_plans(spans, [placement.memory for placement in self.placements])

    @cached_property
    def window_bytes(self) -> int:
        """Of a window in a batch; where windows have different numbers of rows, their mean."""
        counts = np.array([len(placement) for placement in self.placements])
        rows = [int(counts @ plan.most_rows) * plan.gather.window_bytes for plan in self.variates]
        return sum(plan.window_bytes for plan in self.plans) + sum(rows) // max(1, len(self))

    @cached_property
    def drawn(self) -> bool:
        """Whether a `Loader` draws the start of a span."""
        return bool(draws_of(self.placements[0].spans))

    def beside(self, located: Located) -> dict[str, torch.Tensor]:
        """The entries of a batch that are not gathered in windows: its static columns, and other arrays.

        By numpy, because torch's threads do not survive a fork. Arrays are copied, as they may be parts of larger ones.
        """
        batch: dict[str, torch.Tensor] = {}
        if located.static_rows is not None:
            for name, (items, dtype) in self._static_items.items():
                values = torch.from_numpy(items.take(located.static_rows, 0))
                batch[name] = values if values.dtype == dtype else values.view(dtype)
        for name, entry in located.entries.items():
            batch[name] = torch.from_numpy(entry.copy())
        return batch

    @cached_property
    def _static_items(self) -> dict[str, tuple[NDArray[Any], torch.dtype]]:
        return {name: (as_array(tensor), tensor.dtype) for name, tensor in self.static.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Without the cached properties, which hold addresses."""
        return {"placements": self.placements}
