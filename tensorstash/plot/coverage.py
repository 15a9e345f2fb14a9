"""`ts.plot.coverage`: which times each entity covers."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Bools
from tensorstash.plot.axes import bin_of, check_stash, cuts_of, time_axis, time_label
from tensorstash.stash.missing import missing_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import Runs, entity_runs, find_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 500  # a bin narrower than a pixel might not be drawn, and a short gap would vanish
_MOST_ENTITIES = 200
# meaning and colour of each state; the colours also differ in lightness
_STATES = (
    ("no rows", "#ffffff"),
    ("complete", "#b9d4ea"),
    ("any value missing", "#e08a1e"),
    ("gap in time", "#7a0c0c"),
)
_COMPLETE, _MISSING, _GAP = 1, 2, 3


def coverage(stash: Stash, *, frequency: int | str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Draw which times each entity covers: a row per entity, with gaps and missing values.

    Time is cut into at most 500 bins, none shorter than a step of time. A bin is marked if any of its rows has a
    missing value (NaN, or code -1) in some column, or if time steps are missing in it. Bins before the first row of an
    entity and after its last row are white. Of more than 200 entities, 200 at equal distances are drawn. Without a time
    column the axis counts the rows of each entity.

    Args:
        stash: the stash whose rows are drawn.
        frequency: the step of time, as in `Windows`; `None` infers it.
        axes: the axes to draw on; `None` makes a figure.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is missing; the message names the extra.
    """
    try:
        import matplotlib.pyplot as plt
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch
    except ImportError as error:
        raise ImportError("ts.plot.coverage draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    check_stash(stash)
    count = len(stash.offsets) - 1
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTITIES)).astype(np.int64))
    states, edges = _coverage(stash, chosen, frequency)
    if axes is None:
        _, axes = plt.subplots(figsize=(10, 1.5 + min(6.0, 0.35 * len(chosen))), layout="constrained")
    colours = ListedColormap([colour for _, colour in _STATES])
    axes.pcolormesh(
        time_axis(stash, edges), np.arange(len(chosen) + 1), states, cmap=colours, vmin=0, vmax=len(_STATES) - 1
    )
    axes.invert_yaxis()
    if len(chosen) <= 40:
        for edge in range(1, len(chosen)):
            axes.axhline(edge, color="white")
        axes.set_yticks(np.arange(len(chosen)) + 0.5, [str(stash.entities[k]) for k in chosen])
    shown = "" if len(chosen) == count else f", {len(chosen)} of {count:,}"
    axes.set_ylabel(f"{', '.join(stash.entity_names) or 'entity'}{shown}")
    axes.set_xlabel(time_label(stash))
    axes.legend(
        handles=[Patch(facecolor=colour, edgecolor="grey", label=label) for label, colour in _STATES],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(_STATES),
        frameon=False,
    )
    return axes


def _coverage(
    stash: Stash, chosen: NDArray[np.int64], frequency: int | str | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The state of every bin of the chosen entities, `(entities, bins)`, and the `(bins + 1,)` edges of the bins."""
    offsets = stash.offsets.numpy()
    if stash.time is None:
        times = np.arange(stash.rows) - np.repeat(offsets[:-1], np.diff(offsets))
        runs = entity_runs(offsets)
    else:
        times = stash.time.numpy()
        runs = find_runs(offsets, times, stash.clock, frequency, None)
    low, high = (int(times.min()), int(times.max())) if stash.rows else (0, 0)
    step = _shortest_step(runs)
    bins = min(_BINS, (high - low) // step + 1)
    edges = low + cuts_of(high - low + step, bins)
    states = np.zeros((len(chosen), bins), np.uint8)
    for state, entity in zip(states, chosen):
        rows = slice(int(offsets[entity]), int(offsets[entity + 1]))
        own = times[rows]
        if not len(own):
            continue
        at = bin_of(edges, own)
        state[at[0] : at[-1] + 1] = _COMPLETE
        state[at[_missing(stash, rows)]] = _MISSING
        after = _gaps(runs, rows) - rows.start
        # a step shorter than the frequency also ends a run, and no time is missing then
        first_missing = np.minimum(own[after - 1] + step, own[after])
        last_missing = np.maximum(own[after] - 1, first_missing)
        for begin, end in zip(bin_of(edges, first_missing), bin_of(edges, last_missing)):
            state[begin : end + 1] = _GAP
    return states, edges


def _shortest_step(runs: Runs) -> int:
    """Ticks from one row to the next in a run; the shortest if they vary, as months do."""
    if runs.frequency is None:
        return 1
    day = runs.frequency.clock.day
    lengths = {"ticks": 1, "days": day, "business days": day, "months": 28 * day}
    return runs.frequency.count * lengths[runs.frequency.kind]


def _missing(stash: Stash, rows: slice) -> Bools:
    found = (missing_rows(stash, name, rows) for name in stash)
    return np.logical_or.reduce(
        [np.zeros(rows.stop - rows.start, np.bool_), *(one for one in found if one is not None)]
    )


def _gaps(runs: Runs, rows: slice) -> NDArray[np.int64]:
    """The rows of one entity that follow a gap."""
    low, high = np.searchsorted(runs.first, (rows.start + 1, rows.stop))
    return runs.first[low:high]
