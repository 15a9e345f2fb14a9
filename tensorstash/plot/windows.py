"""`ts.plot.windows`: the times of each entity that the parts of a split use."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tensorstash.common.calendar import Calendar
from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import type_text
from tensorstash.plot.axes import chosen_entities, entity_lanes, label_times, legend_beside, pyplot, time_axis
from tensorstash.stash.stash import Stash
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import nearest_rows, steps_after, times_at
from tensorstash.windows.windows import Windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ENTITIES = 40
_SHARE = 0.8  # how much of an entity's height is drawn; the rest keeps entities apart
# two hues by turns: where training and test parts alternate, each kind has one, in three shades
_PARTS = ("#1f6ba8", "#d9702a", "#5ba3d9", "#e8a06a", "#9cc9ec", "#f5c9a0")


def windows(parts: Windows | Mapping[str, Windows], *, axes: "Axes | None" = None) -> "Axes":
    """Draw which times of each entity the parts of a split use: a lane per part, pale where only histories reach.

    The full colour covers the horizons of the windows (without a horizon, whole windows), by which a split divides; the
    pale colour covers their histories. Of more than 40 entities, 40 at equal distances are drawn.

    Args:
        parts: windows, or those of one stash by the name of the part, such as `{"train": train, "valid": valid}`.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes. Without a time column they count the rows of the stash; dates are shown in the zone of the times.

    Raises:
        ValueError: there is no part, or the parts are not windows of one stash. ImportError: matplotlib is missing; the
            message names the extra.

    Example:
        >>> import numpy as np, pytest, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> days = np.arange("2024-01-01", "2024-01-31", dtype="M8[D]")
        >>> stash = ts.load({"t": days, "y": np.ones(30)}, time="t")
        >>> train, valid = ts.Windows(stash, history=7, horizon=2).split("2024-01-21")
        >>> axes = ts.plot.windows({"train": train, "valid": valid})
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['train: 12 windows', 'valid: 9 windows']
    """
    plt = pyplot("windows", axes)
    from matplotlib.patches import Patch

    parts = {"all": parts} if isinstance(parts, Windows) else parts
    stash = _stash_of(parts)
    chosen = chosen_entities(stash, _MOST_ENTITIES)
    axes = entity_lanes(plt, axes, stash, chosen, _MOST_ENTITIES)
    height = _SHARE / len(parts)
    colours = [_PARTS[k % len(_PARTS)] for k in range(len(parts))]
    for k, (part, colour) in enumerate(zip(parts.values(), colours)):
        entity, *edges = _covered(part.placement)
        drawn = np.isin(entity, chosen)
        bottom = np.searchsorted(chosen, entity[drawn]) + (1 - _SHARE) / 2 + k * height
        first_past, last_past, first, last = (time_axis(stash, edge[drawn]) for edge in edges)
        for low, high, alpha in ((first_past, last_past, 0.3), (first, last, 1.0)):
            axes.barh(bottom, high - low, height, low, align="edge", color=colour, alpha=alpha, linewidth=0.5)
    axes.set_ylim(len(chosen), 0)
    label_times(axes, stash.time_name or "row of the stash", stash.clock)
    labels = [f"{name}: {len(part):,} windows" for name, part in parts.items()]
    legend_beside(axes, [Patch(fc=colour, label=label) for colour, label in zip(colours, labels)])
    return axes


def _stash_of(parts: object) -> Stash:
    if not isinstance(parts, Mapping) or isinstance(parts, Stash) or not parts:
        raise ValueError(
            f"parts must be windows, or a mapping such as {{'train': train, 'valid': valid}}, got {shown(parts)}."
        )
    stashes = [part.stash if isinstance(part, Windows) else None for part in parts.values()]
    if stashes[0] is None or any(stash is not stashes[0] for stash in stashes):
        kinds = ", ".join(f"{name!r} is {type_text(part)}" for name, part in parts.items())
        raise ValueError(f"Each part must be a Windows, all of one stash; {kinds}. Draw each stash separately.")
    return stashes[0]


def _covered(placement: Placement) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """The entity of each interval, the first and last time of its histories, and those of its horizons.

    Windows at points in time, or without a span in slots, are an interval each.
    """
    if placement.points is not None or not placement.slot_spans:
        ids = np.arange(len(placement))
        first, moments, last = _extent(placement, ids)
        return placement.window_entities(ids), first, moments, moments, last
    within = placement.intervals
    first = within.first
    last = first + within.stride * (np.diff(within.guide.ends, prepend=0) - 1)
    judged = placement.history if placement.horizon else 0  # the first slot whose time decides the part of a split
    edges = (first, last + max(placement.history, 1) - 1, first + judged, last + placement.length - 1)
    first_past, last_past, first_future, last_future = (_slot_times(placement, edge) for edge in edges)
    entity = placement.entities_at(placement.label_rows(first + placement.history))
    return entity, first_past, last_past, first_future, last_future


def _extent(placement: Placement, ids: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The first time that each window reads, its own time and the last time that it reads; rows of a stash without."""
    anchors = placement.anchor_slots(ids)
    if placement.points is None:
        moments = _slot_times(placement, anchors + placement.label_offset)
    else:
        moments = placement.points.time[ids]
    starts, stops = [moments], [moments]
    for time_span in placement.time_spans:
        around, ticks = time_span.table.moments(moments), time_span.table.window_ticks
        starts.append(time_span.start.moved(around) // ticks)
        stops.append(time_span.stop.moved(around) // ticks)
    if placement.slot_spans:
        starts.append(_slot_times(placement, anchors - placement.history))
        stops.append(_slot_times(placement, anchors + placement.horizon - 1) if placement.horizon else moments)
    return np.minimum.reduce(starts), moments, np.maximum.reduce(stops)


def _slot_times(placement: Placement, slots: Int64s) -> Int64s:
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
