"""`ts.plot.windows`: which times of each entity belong to which part of a split."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.plot.axes import time_axis, time_label
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Intervals
from tensorstash.windows.layout import Layout, entities_of, label_rows
from tensorstash.windows.slots import nearest_rows, times_at
from tensorstash.windows.windows import Windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ENTITIES = 40
_SHARE = 0.8  # of the height of an entity; the rest keeps entities apart
_PARTS = ("#14507a", "#c8641b", "#5b8c3e", "#7a4f9c", "#8a8a8a")


def windows(parts: Mapping[str, Windows], *, axes: "Axes | None" = None) -> "Axes":
    """Draw which times of each entity the parts of a split use: a lane per part, pale where only histories reach.

    The full colour covers the horizons of the windows (without a horizon, whole windows), which are what a split goes
    by; the pale colour covers their histories. Of more than 40 entities, 40 at equal distances are drawn.

    Args:
        parts: windows of one stash by the name of the part, such as `{"train": train, "valid": valid}`.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes. Without a time column they count the rows of the stash.

    Raises:
        ValueError: there is no part, or the parts are not windows of one stash. ImportError: matplotlib is missing; the
            message names the extra.

    Example:
        >>> import numpy as np, pytest, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> stash = ts.load({"t": np.arange("2024-01-01", "2024-01-31", dtype="M8[D]"), "y": np.ones(30)}, time="t")
        >>> train, valid = ts.Windows(stash, history=7, horizon=2).split("2024-01-21")
        >>> axes = ts.plot.windows({"train": train, "valid": valid})
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['train: 12 windows', 'valid: 9 windows']
    """
    try:
        import matplotlib.pyplot as plt
        from matplotlib.patches import Patch
    except ImportError as error:
        raise ImportError("ts.plot.windows draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    stash = _stash_of(parts)
    count = len(stash.offsets) - 1
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTITIES)).astype(np.int64))
    if axes is None:
        _, axes = plt.subplots(figsize=(10, 1.5 + min(6.0, 0.35 * len(chosen))), layout="constrained")
    height = _SHARE / len(parts)
    colours = [_PARTS[k % len(_PARTS)] for k in range(len(parts))]
    for k, (part, colour) in enumerate(zip(parts.values(), colours)):
        entity, stretches = _stretches(part._layout, part._intervals)
        lane = np.searchsorted(chosen, entity)
        drawn = chosen[np.minimum(lane, len(chosen) - 1)] == entity
        for (low, high), alpha in zip(stretches, (0.3, 1.0)):
            begin, end = (time_axis(stash, edge[drawn]) for edge in (low, high))
            bottom = lane[drawn] + (1 - _SHARE) / 2 + k * height
            axes.barh(bottom, end - begin, height, begin, align="edge", color=colour, alpha=alpha, linewidth=0.5)
    axes.set_ylim(len(chosen), 0)
    axes.set_yticks(np.arange(len(chosen)) + 0.5, [str(stash.entities[k]) for k in chosen])
    shown = "" if len(chosen) == count else f", {len(chosen)} of {count:,}"
    axes.set_ylabel(f"{', '.join(stash.entity_names) or 'entity'}{shown}")
    axes.set_xlabel(time_label(stash) if stash.time_name else "row of the stash")
    labels = [f"{name}: {len(part):,} windows" for name, part in parts.items()]
    handles = [Patch(facecolor=colour, label=label) for colour, label in zip(colours, labels)]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts), frameon=False)
    return axes


def _stash_of(parts: object) -> Stash:
    """The stash of all parts."""
    if not isinstance(parts, Mapping) or not parts:
        raise ValueError(f"Parts are a mapping such as {{'train': train, 'valid': valid}}; got {parts!r}.")
    for name, part in parts.items():
        if not isinstance(part, Windows):
            raise ValueError(f"Each part is a Windows; {name!r} is a {type(part).__name__}.")
    first, *others = parts.values()
    if any(part.stash is not first.stash for part in others):
        raise ValueError("Parts are windows of one stash; these are of several. Draw each stash by itself.")
    return first.stash


Stretch = tuple[Int64s, Int64s]  # the first and the last time of each


def _stretches(layout: Layout, within: Intervals) -> tuple[Int64s, tuple[Stretch, Stretch]]:
    """For each interval: its entity, and the stretch of times that the histories and that the horizons cover."""
    first = within.first
    last = first + within.stride * (np.diff(within.ends, prepend=0) - 1)
    judged = layout.history if layout.horizon else 0  # the first slot that a split goes by
    entity = entities_of(layout, label_rows(layout, first + layout.history))
    edges = (first, last + max(layout.history, 1) - 1, first + judged, last + layout.length - 1)
    begin_history, end_history, begin, end = (_times(layout, edge) for edge in edges)
    return entity, ((begin_history, end_history), (begin, end))


def _times(layout: Layout, slots: Int64s) -> NDArray[np.int64]:
    """The time of each slot, or without times its row, or the nearest one of its run."""
    return nearest_rows(layout.slots, slots)[0] if layout.times is None else times_at(layout.slots, layout.times, slots)
