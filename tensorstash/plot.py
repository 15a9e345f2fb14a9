"""Pictures of a stash, with matplotlib (the extra `plot`)."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.runs import Runs, entity_runs, find_runs
from tensorstash.stash import Stash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 500  # a bin narrower than a pixel may not be drawn, and a short gap would vanish
_MOST_ENTITIES = 200
# value -> meaning, colour; the colours also differ in lightness
_STATES = (
    ("no rows", "#ffffff"),
    ("complete", "#b9d4ea"),
    ("any value missing", "#e08a1e"),
    ("gap in time", "#7a0c0c"),
)
_COMPLETE, _MISSING, _GAP = 1, 2, 3


def plot_coverage(stash: Stash, *, frequency: int | str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Draw which times each entity covers: a row per entity, with gaps and missing values.

    Time is cut into at most 500 bins, none shorter than a step of time. A bin is marked where any of its rows has a
    missing value (NaN, or code -1) in some column, and where time steps are missing in it; it is white before the first
    row of an entity and after the last. The `frequency` is that of `Windows`. Of more than 200 entities, 200 at equal
    distances are drawn. Without a time column the axis counts the rows of each entity.

    Raises `ImportError`, which names the extra, where matplotlib is missing.
    """
    try:
        import matplotlib.pyplot as plt
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch
    except ImportError as error:
        raise ImportError("plot_coverage draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    count = len(stash.offsets) - 1
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTITIES)).astype(np.int64))
    states, edges = coverage(stash, chosen, frequency)
    if axes is None:
        _, axes = plt.subplots(figsize=(10, 1.5 + min(6.0, 0.35 * len(chosen))), layout="constrained")
    colours = ListedColormap([colour for _, colour in _STATES])
    axes.pcolormesh(
        _axis(stash, edges), np.arange(len(chosen) + 1), states, cmap=colours, vmin=0, vmax=len(_STATES) - 1
    )
    axes.invert_yaxis()
    if len(chosen) <= 40:
        for edge in range(1, len(chosen)):
            axes.axhline(edge, color="white")
        axes.set_yticks(np.arange(len(chosen)) + 0.5, [str(stash.entities[k]) for k in chosen])
    shown = "" if len(chosen) == count else f", {len(chosen)} of {count:,}"
    axes.set_ylabel(f"{', '.join(stash.entity_names) or 'entity'}{shown}")
    zone = "" if stash.clock.zone is None else " (UTC)"
    axes.set_xlabel(f"{stash.time_name}{zone}" if stash.time_name else "row of the entity")
    axes.legend(
        handles=[Patch(facecolor=colour, edgecolor="grey", label=label) for label, colour in _STATES],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(_STATES),
        frameon=False,
    )
    return axes


def coverage(
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
    edges = low + _cuts(high - low + step, bins)
    states = np.zeros((len(chosen), bins), np.uint8)
    for state, entity in zip(states, chosen):
        rows = slice(int(offsets[entity]), int(offsets[entity + 1]))
        own = times[rows]
        if not len(own):
            continue
        at = _bin(edges, own)
        state[at[0] : at[-1] + 1] = _COMPLETE
        state[at[_missing(stash, rows)]] = _MISSING
        after = _gaps(runs, rows) - rows.start
        # where steps are shorter than the frequency none is missing, but time does not go on as it should
        first_missing = np.minimum(own[after - 1] + step, own[after])
        last_missing = np.maximum(own[after] - 1, first_missing)
        for begin, end in zip(_bin(edges, first_missing), _bin(edges, last_missing)):
            state[begin : end + 1] = _GAP
    return states, edges


def _shortest_step(runs: Runs) -> int:
    """Ticks from one row to the next in a run; of steps that vary, the shortest."""
    if runs.frequency is None:
        return 1
    day = runs.frequency.clock.day
    lengths = {"ticks": 1, "days": day, "business days": day, "months": 28 * day}
    return runs.frequency.count * lengths[runs.frequency.kind]


def _cuts(length: int, bins: int) -> NDArray[np.int64]:
    """`k * length // bins` for k in 0..bins; the product itself would overflow with nanoseconds."""
    k, (whole, rest) = np.arange(bins + 1), divmod(length, bins)
    return k * whole + k * rest // bins


def _bin(edges: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(edges, times, "right") - 1


def _missing(stash: Stash, rows: slice) -> NDArray[np.bool_]:
    missing = torch.zeros(rows.stop - rows.start, dtype=torch.bool)
    for name, tensor in stash.items():
        if stash.about(name)["missing"]:
            part = tensor[rows].flatten(1) if tensor.ndim > 1 else tensor[rows, None]
            missing |= (torch.isnan(part) if part.dtype.is_floating_point else part < 0).any(1)
    return missing.numpy()


def _gaps(runs: Runs, rows: slice) -> NDArray[np.int64]:
    """The rows after a gap, among those of one entity."""
    low, high = np.searchsorted(runs.first, (rows.start + 1, rows.stop))
    return runs.first[low:high]


def _axis(stash: Stash, edges: NDArray[np.int64]) -> NDArray[Any]:
    """Edges of bins as matplotlib takes them: dates in UTC where the times are dates."""
    unit = stash.clock.unit
    return edges if unit is None else edges.astype(f"datetime64[{'D' if unit == 'd' else unit}]")
