"""How far windows reach: the times of their first and last slots, and of what they see in time."""

from typing import Any

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.checks import is_integer
from tensorstash.common.dtypes import Int64s
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import nearest_rows, steps_after, times_at


def extent(placement: Placement, ids: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The first time that each window reads, its own time and the last time that it reads; rows of a stash without."""
    anchors = placement.anchor_slots(ids)
    if placement.points is None:
        moments = slot_times(placement, anchors + placement.label_offset)
    else:
        moments = placement.points.time[ids]
    starts, stops = [moments], [moments]
    for time_span in placement.time_spans:
        around, ticks = time_span.table.moments(moments), time_span.table.window_ticks
        starts.append(time_span.start.moved(around) // ticks)
        stops.append(time_span.stop.moved(around) // ticks)
    if placement.slot_spans:
        starts.append(slot_times(placement, anchors - placement.history))
        stops.append(slot_times(placement, anchors + placement.horizon - 1) if placement.horizon else moments)
    return np.minimum.reduce(starts), moments, np.maximum.reduce(stops)


def slot_times(placement: Placement, slots: Int64s) -> Int64s:
    """The time of each slot, or its row without times; of an empty slot that of the nearest row without a frequency.

    Slots outside of a calendar have its first or last time.
    """
    (rows, distance), step = nearest_rows(placement.slots, slots), placement.slots.frequency
    if placement.stash.time is None:
        return rows
    if step is None:
        return placement.times[rows]
    if isinstance(step, Calendar):
        return np.clip(steps_after(placement.slots, placement.times, rows, distance), *step.times[[0, -1]])
    return times_at(placement.slots, placement.times, slots)


def needs(placement: Placement) -> dict[str, Any]:
    """What `Windows.needs` returns."""
    found: dict[str, Any] = {"slots": placement.history, "during": {}}
    for part in placement.time_spans:
        text, name = part.start.text, part.table.name
        starts = {span.name: int(text) if is_integer(text) else str(text) for span in part.spans}
        if name is not None:
            found.setdefault("tables", {}).setdefault(name, {}).update(starts)
        elif part.start.steps < 0:
            found["during"].update(starts)
    return found
