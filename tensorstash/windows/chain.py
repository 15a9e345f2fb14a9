"""The windows of one or several stashes as one sequence, and where some of them are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.records import Record, arrays_of, each_array
from tensorstash.gather.memory import by_component
from tensorstash.gather.rows import InSlots, Rows, Stretches
from tensorstash.native.guide import find, guide, locate
from tensorstash.native.kernel import Guide
from tensorstash.native.permutation import Uint64s
from tensorstash.windows.placement import Placement
from tensorstash.windows.time_spans import Candidates, TimeSpan, picked_of


class Located(NamedTuple):
    """Windows of a chain, all arrays `(windows, ...)`."""

    component: Int32s | None  # of each, the number of its placement; None if there is one
    ids: Int64s  # in the chain
    anchors: Int64s  # the slots of their anchors
    stretches: tuple[Stretches | Candidates, ...] = ()  # the rows of their spans in time, one for each time span
    skips: Int64s | None = None  # (windows, draws) the slots that each `ts.Draw` leaves out, if there are any
    keys: Mapping[str, Uint64s] = MappingProxyType({})  # hashes by which columns of packs are drawn, by pack
    static_rows: Int64s | None = None  # the rows of the static columns, if there are any
    entries: Mapping[str, NDArray[Any]] = MappingProxyType({})  # other entries of their batches, such as ids


@dataclass(frozen=True, eq=False)
class Chain:
    """The windows of one or several components, numbered one after the other. All have the same spans."""

    placements: tuple[Placement, ...]

    def __len__(self) -> int:
        return sum(map(len, self.placements))

    def locate(self, ids: Int64s) -> Located:
        """Where windows are, by ids `(k,)` that are known to lie in `[0, len(self))`."""
        component: Int32s | None = None
        if len(self.placements) == 1:  # looking up the component would double the cost
            anchors = self.placements[0].anchor_slots(ids)
        elif any(placement.points is not None for placement in self.placements):
            component, anchors = find(self._ends, ids), np.empty_like(ids)
            for k, which in by_component(component):
                anchors[which] = self.placements[k].anchor_slots(ids[which] - self._first[k])
        else:
            stride, more = self._stride
            interval, anchors = locate(self._bases, stride, ids)
            component = self._owner.take(interval)
            if more is not None:
                anchors += more[component] * (ids - self._first[component])
        located = Located(component, ids, anchors)
        if not self.time_spans:
            return located
        return located._replace(
            stretches=self._of_each(
                located, lambda at, *of: tuple(at.stretches(time_span, *of) for time_span in at.time_spans)
            )
        )

    def _of_each(self, located: Located, of: Callable[[Placement, Int64s, Int64s], Record]) -> Record:
        """What a function makes of windows of one placement, their ids in it and the slots of their anchors.

        Of several placements, the arrays have the windows in the order of `located`.
        """
        if located.component is None or not len(located.ids):
            return of(self.placements[0], located.ids, located.anchors)
        found = [(which, of(placement, ids, anchors)) for placement, which, ids, anchors in self.by_placement(located)]
        _, whole = found[0]
        whole = each_array(whole, lambda array: np.empty((*located.ids.shape, *array.shape[1:]), array.dtype))
        for which, some in found:
            for array, values in zip(arrays_of(whole), arrays_of(some)):
                array[which] = values
        return whole

    def within(self, located: Located) -> Int64s:
        """The ids of windows in their own placements."""
        return located.ids if located.component is None else located.ids - self._first[located.component]

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
        counts = [len(placement.intervals.guide.base) for placement in self.placements]
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @cached_property
    def _stride(self) -> tuple[int, Int64s | None]:
        """The stride of the first placement, and by how much the others' are larger; `None` if all are equal."""
        strides = np.array([placement.intervals.stride for placement in self.placements], np.int64)
        more = strides - strides[0]
        return int(strides[0]), more if more.any() else None

    def by_placement(self, located: Located) -> Iterator[tuple[Placement, Any, Int64s, Int64s]]:
        """Each placement that occurs, the index of its windows, their ids in it and the slots of their anchors."""
        for k, which in by_component(located.component):
            yield self.placements[k], which, located.ids[which] - self._first[k], located.anchors[which]

    def entities(self, located: Located) -> Int64s:
        """The entity of each window in its own stash."""
        return self._of_each(located, lambda placement, ids, _: placement.window_entities(ids))

    def moments(self, located: Located) -> Int64s:
        """The anchor time of each window, or without a time column the row of its anchor."""
        return self._of_each(located, Placement.window_times)

    def labels(self, located: Located) -> dict[str, NDArray[Any]]:
        """The other columns of the `at=` frame, `(windows,)`, or `<span>.repeated` of `cover`, `(windows, time)`."""
        first = self.placements[0]
        none = first.cover is None and (first.points is None or not first.points.labels)
        return {} if none else self._of_each(located, _labels)

    def rows(self, located: Located) -> list[Rows]:
        """The rows of windows: at their slots, if they have spans of whole columns there, and in each span in time.

        Those that do not follow each other are picked now.
        """
        rows: list[Rows] = [InSlots(located.anchors, located.skips)] if self.has_slots else []
        for found, time_spans in zip(located.stretches, self.time_spans):
            rows.append(found if isinstance(found, Stretches) else picked_of(time_spans, found, located.component))
        return rows

    @cached_property
    def has_slots(self) -> bool:
        """Whether windows have spans in slots that hold whole columns."""
        return bool(self.placements[0].whole_spans)

    @cached_property
    def time_spans(self) -> list[tuple[TimeSpan, ...]]:
        """Those of all placements, of each span in time."""
        return [*zip(*(placement.time_spans for placement in self.placements))]

    def static_rows(self, located: Located, entities: Int64s) -> Int64s:
        """The rows of static columns that windows have, by the entities in their own stashes."""
        return entities if located.component is None else entities + self._first_entity[located.component]

    @cached_property
    def _first_entity(self) -> Int64s:
        return np.cumsum([0, *(len(placement.offsets) - 1 for placement in self.placements[:-1])])

    def __getstate__(self) -> dict[str, Any]:
        """Without the cached properties, which are computed again."""
        return {"placements": self.placements}


def _labels(placement: Placement, ids: Int64s, anchors: Int64s) -> dict[str, NDArray[Any]]:
    points, cover = placement.points, placement.cover
    if cover is not None:
        return {f"{cover.span.name}.repeated": placement.repeated(cover, ids, anchors)}
    return {} if points is None else {name: values[points.row[ids]] for name, values in points.labels.items()}
