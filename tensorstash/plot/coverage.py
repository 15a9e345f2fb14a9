"""`ts.plot.coverage`: which times each entity covers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.calendar import GivenStep
from tensorstash.common.checks import names_in
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import counted
from tensorstash.plot.axes import (
    check_stash,
    chosen_entities,
    entity_lanes,
    label_times,
    legend_beside,
    pyplot,
    time_axis,
)
from tensorstash.stash.missing import missing_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import entity_runs, find_runs, step_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 500  # so few that a bin is a pixel wide: a narrower one might not be drawn, and a short gap would vanish
_MOST_ENTITIES = 200
_MOST_NAMES = 40
# no rows, complete, a value missing, rows with gaps, a gap alone; the colours also differ in lightness
_STATES = ("#ffffff", "#b9d4ea", "#e08a1e", "#b8504a", "#5a0808")
_COMPLETE, _MISSING, _PART, _GAP = 1, 2, 3, 4


def coverage(
    stash: Stash,
    *,
    columns: Sequence[str] | None = None,
    frequency: GivenStep | None = None,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw which times each entity covers: a lane per entity, with gaps and missing values.

    Time is cut into at most 500 bins, none shorter than a step of time. A bin is marked if any of its rows has a
    missing value (NaN, or code -1) in one of the columns, if some of its time steps are missing, or if it has no row.
    Bins before the first row of an entity and after its last row are white. Of more than 200 entities, 200 at equal
    distances are drawn. The axis shows dates in the zone of the times, or without a time column counts the rows of each
    entity.

    Args:
        stash: the stash whose rows are drawn.
        columns: the columns whose missing values are marked. `None` takes all, without those that are missing in most
            rows, which the legend counts: they would mark everything.
        frequency: the step of time, such as "1h", or a calendar, all times that exist; `None` takes that of the load,
            else the most common step.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes.

    Raises:
        ColumnError: no such column. ImportError: matplotlib is missing; the message names the extra.

    Example:
        >>> import pytest, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> axes = ts.plot.coverage(ts.load({"t": [1, 2, 5], "y": [1.0, None, 3.0]}, time="t"))
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['complete', 'a value missing', 'gap in time']
    """
    plt = pyplot("coverage", axes)
    from matplotlib.patches import Patch

    check_stash(stash)
    chosen = chosen_entities(stash, _MOST_ENTITIES)
    names = _dense(stash) if columns is None else names_in(columns, "columns")
    states, edges = _coverage(stash, chosen, names, frequency)
    axes = entity_lanes(plt, axes, stash, chosen, _MOST_NAMES)
    colours = plt.matplotlib.colors.ListedColormap([*_STATES])
    axes.pcolormesh(
        time_axis(stash, edges), np.arange(len(chosen) + 1), states, cmap=colours, vmin=0, vmax=len(_STATES) - 1
    )
    axes.invert_yaxis()
    if len(chosen) <= _MOST_NAMES:
        for edge in range(1, len(chosen)):
            axes.axhline(edge, color="white")
    label_times(axes, stash.time_name or "row of the entity", stash.clock)
    sparse = len(stash) - len(names) if columns is None else 0
    missing = f"a value missing\n(not of {counted(sparse, 'sparse column')})" if sparse else "a value missing"
    labels = ("no rows", "complete", missing, "some steps missing", "gap in time")
    legend_beside(axes, [Patch(fc=_STATES[k], ec="grey", label=labels[k]) for k in np.unique(states)])
    return axes


def _dense(stash: Stash) -> list[str]:
    """The columns with a value in at least half of the rows; all if there is none."""
    return [name for name, tensor in stash.items() if 2 * stash.about(name).missing <= tensor.numel()] or [*stash]


def _coverage(
    stash: Stash, chosen: Int64s, names: Sequence[str], frequency: GivenStep | None
) -> tuple[NDArray[np.uint8], Int64s]:
    """The state of every bin of the chosen entities, `(entities, bins)`, and the `(bins + 1,)` edges of the bins."""
    offsets = stash.offsets.numpy()
    if stash.time is None:
        if frequency is not None:
            raise ValueError("frequency must be left out for a stash without times.")
        times = np.arange(stash.rows) - np.repeat(offsets[:-1], np.diff(offsets))
        runs = entity_runs(offsets)
    else:
        times = stash.time.numpy()
        runs = find_runs(offsets, times, stash.clock, step_of(stash, frequency, None))
    first, last = (int(times.min()), int(times.max())) if stash.rows else (0, 0)
    step = 1 if runs.frequency is None else runs.frequency.least_ticks
    bins = min(_BINS, (last - first) // step + 1)
    edges = np.array([first + k * (last - first + step) // bins for k in range(bins + 1)])  # exact in Python's integers
    states = np.zeros((len(chosen), bins), np.uint8)
    incomplete = [missing for name in names if (missing := missing_rows(stash, name)) is not None]
    for state, entity in zip(states, chosen):
        rows = slice(int(offsets[entity]), int(offsets[entity + 1]))
        entity_times = times[rows]
        if not len(entity_times):
            continue
        bins_of_rows = _bin_of(edges, entity_times)
        state[bins_of_rows[0] : bins_of_rows[-1] + 1] = _COMPLETE
        for missing in incomplete:
            state[bins_of_rows[missing(rows)]] = _MISSING
        low, high = np.searchsorted(runs.first, (rows.start + 1, rows.stop))
        after = runs.first[low:high] - rows.start
        # a step shorter than the frequency also ends a run, and no time is missing then
        first_missing = np.minimum(entity_times[after - 1] + step, entity_times[after])
        last_missing = np.maximum(entity_times[after] - 1, first_missing)
        for low, high in zip(_bin_of(edges, first_missing), _bin_of(edges, last_missing)):
            state[low : high + 1] = _GAP
        state[bins_of_rows[state[bins_of_rows] == _GAP]] = _PART
    return states, edges


def _bin_of(edges: Int64s, times: Int64s) -> Int64s:
    """The bin of each time."""
    return np.searchsorted(edges, times, "right") - 1
