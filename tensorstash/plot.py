"""`ts.plot`: pictures of a stash, with matplotlib (the extra `plot`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import names_in
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.stash.missing import missing_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import Runs, entity_runs, find_runs
from tensorstash.windows.splits import Moment
from tensorstash.windows.windows import Windows

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
_PIXELS = 1000  # across the axes of a figure of usual width
# lines differ in lightness, and then in dashes
_COLOURS = ("#14507a", "#c8641b", "#9cc3e0")
_DASHES = ("-", "--", ":", "-.")
_MOST_NAMES = 20  # a larger vocabulary is not written along an axis


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
    _check_stash(stash)
    count = len(stash.offsets) - 1
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTITIES)).astype(np.int64))
    states, edges = _coverage(stash, chosen, frequency)
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
    axes.set_xlabel(_time_label(stash))
    axes.legend(
        handles=[Patch(facecolor=colour, edgecolor="grey", label=label) for label, colour in _STATES],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(_STATES),
        frameon=False,
    )
    return axes


def _check_stash(stash: object) -> None:
    if not isinstance(stash, Stash):
        remedy = " Take windows.stash." if isinstance(stash, Windows) else ""
        raise TypeError(f"A stash is drawn; got a {type(stash).__name__}.{remedy}")


def series(
    stash: Stash,
    entity: Any,
    columns: Sequence[str],
    *,
    start: Moment | None = None,
    end: Moment | None = None,
    frequency: int | str | None = None,
    axes: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """Draw columns of one entity over time, each column in its own axes, with one line for each number of a pack.

    A line is broken where time steps or values (NaN, infinite, or code -1) are missing; a value between two such places
    is a dot. If there are more rows than pixels, only the first, last, smallest and largest value of each pixel are
    drawn, which gives the same picture (Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation",
    2014). Codes are drawn as steps, labelled with the names of a small vocabulary.

    Args:
        stash: the stash that holds the columns.
        entity: one of `stash.entities`; `None` if the stash has none.
        columns: names of columns.
        start: the first time that is drawn, written like the cuts of `Windows.split`.
        end: the time before which drawing ends.
        frequency: the step of time, as in `Windows`; a missing step is a gap.
        axes: axes to draw on, one for each column; `None` makes a figure.

    Returns:
        The axes, one for each column. Without a time column they count the rows of the entity.

    Raises:
        ColumnError: a column or the entity does not exist. ValueError: there is no row in these times. ImportError:
            matplotlib is missing; the message names the extra.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("ts.plot.series draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    _check_stash(stash)
    names = names_in(columns, "columns")
    if not names:
        raise ValueError("columns= names at least one column; none was given.")
    series = stash.series(entity)
    for name in names:
        stash[name]  # raises an error if there is no such column
    rows, times, gaps = _rows_drawn(stash, series, start, end, frequency)
    if axes is None:
        _, grid = plt.subplots(
            len(names), squeeze=False, sharex=True, figsize=(10, 1 + 2 * len(names)), layout="constrained"
        )
        axes = [*grid[:, 0]]
    count = len(axes) if isinstance(axes, (Sequence, np.ndarray)) else None
    if count != len(names):
        got = repr(axes) if count is None else count
        raise ValueError(f"axes= is a list of axes, one for each column; got {got} for {len(names)} columns.")
    for name, one in zip(names, axes):
        _draw(one, stash, name, series[name][rows], times=times, gaps=gaps)
    if stash.entity_names:
        axes[0].set_title(f"{', '.join(stash.entity_names)} {entity}", loc="left")
    axes[-1].set_xlabel(_time_label(stash))
    return [*axes]


def _rows_drawn(
    stash: Stash, series: dict[str, torch.Tensor], start: Moment | None, end: Moment | None, frequency: int | str | None
) -> tuple[slice, Int64s, Bools]:
    """The rows of a series between `start` and `end`, their times, and which rows do not follow the row before."""
    if stash.time is None:
        if start is not None or end is not None:
            raise ValueError("start= and end= need a time column, and this stash has none: ts.load(..., time=...).")
        count = len(next(iter(series.values())))
        return slice(0, count), np.arange(count), np.zeros(count, np.bool_)
    times = series[str(stash.time_name)].numpy()
    gaps = np.zeros(len(times), np.bool_)
    gaps[find_runs(np.array([0, len(times)]), times, stash.clock, frequency, None).first] = True
    low = 0 if start is None else int(np.searchsorted(times, stash.clock.parse(start)))
    high = len(times) if end is None else int(np.searchsorted(times, stash.clock.parse(end)))
    if low >= high:
        known = f"{stash.clock.format(int(times[0]))} to {stash.clock.format(int(times[-1]))}" if len(times) else "none"
        raise ValueError(f"start= and end= enclose at least one row; got {start} to {end}, and the times are {known}.")
    return slice(low, high), times[low:high], gaps[low:high]


def _draw(axes: "Axes", stash: Stash, name: str, values: torch.Tensor, *, times: Int64s, gaps: Bools) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    about, members = stash.about(name), stash.about(name).members
    is_coded = about.is_coded
    flat = values.flatten(1) if values.ndim > 1 else values[:, None]
    for k in range(flat.shape[1]):
        numbers = flat[:, k].to(torch.float64).numpy()
        if is_coded:
            numbers = np.where(numbers < 0, np.nan, numbers)
        label = members[k] if len(members) > 1 else str(k)
        colour, dashes = _COLOURS[k % len(_COLOURS)], _DASHES[k // len(_COLOURS) % len(_DASHES)]
        at, drawn, alone = _line(times, numbers, gaps)
        steps = "steps-post" if is_coded or values.dtype == torch.bool else "default"
        axes.plot(_axis(stash, at), drawn, dashes, linewidth=1, color=colour, drawstyle=steps, label=label)
        axes.plot(_axis(stash, at[alone]), drawn[alone], ".", markersize=3, color=colour)
    if flat.shape[1] > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if about.kind == "category" and len(stash.vocabulary(name)) <= _MOST_NAMES:
        shown = [*map(str, stash.vocabulary(name)), *(["(unknown)"] if about.unknown else [])]
        axes.set_yticks(range(len(shown)), shown)
    axes.set_ylabel(name if about.unit is None else f"{name} ({about.unit})")
    if stash.clock.unit is not None:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _line(times: Int64s, values: NDArray[np.float64], gaps: Bools) -> tuple[Int64s, NDArray[np.float64], Int64s]:
    """The points of a line that is broken at gaps and missing values: times, values, and which points stand alone.

    The line is broken at NaN. Only the first, last, smallest and largest value of each pixel are kept.
    """
    there = np.isfinite(values)
    opens = gaps.copy()
    opens[1:] |= ~there[:-1]
    piece = np.cumsum(opens)[there]
    times, values = times[there], values[there]
    if len(times) > 4 * _PIXELS:
        kept = _visible(times, values)
        piece, times, values = piece[kept], times[kept], values[kept]
    new = np.flatnonzero(np.diff(piece)) + 1
    ends = np.concatenate([[0], new, [len(piece)]])
    alone = ends[:-1][np.diff(ends) == 1]
    # the point without a value has the last time of its piece: with a later time, steps would be drawn on to it
    places = alone + np.searchsorted(new, alone, "right")
    return np.insert(times, new, times[new - 1]), np.insert(values, new, np.nan), places


def _visible(times: Int64s, values: NDArray[np.float64]) -> Int64s:
    """The indices of the first, last, smallest and largest point in each pixel."""
    edges = times[0] + _cuts(int(times[-1]) - int(times[0]) + 1, _PIXELS)
    pixel = _bin(edges, times)
    first = np.flatnonzero(np.diff(pixel, prepend=-1))
    sizes = np.diff(first, append=len(pixel))
    kept = [first, first + sizes - 1]
    for extreme in (np.minimum, np.maximum):
        same = np.flatnonzero(values == np.repeat(extreme.reduceat(values, first), sizes))
        kept.append(same[np.flatnonzero(np.diff(pixel[same], prepend=-1))])
    return np.unique(np.concatenate(kept))


def _time_label(stash: Stash) -> str:
    zone = "" if stash.clock.zone is None else " (UTC)"
    return f"{stash.time_name}{zone}" if stash.time_name else "row of the entity"


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
        # a step shorter than the frequency also ends a run, and no time is missing then
        first_missing = np.minimum(own[after - 1] + step, own[after])
        last_missing = np.maximum(own[after] - 1, first_missing)
        for begin, end in zip(_bin(edges, first_missing), _bin(edges, last_missing)):
            state[begin : end + 1] = _GAP
    return states, edges


def _shortest_step(runs: Runs) -> int:
    """Ticks from one row to the next in a run; the shortest if they vary, as months do."""
    if runs.frequency is None:
        return 1
    day = runs.frequency.clock.day
    lengths = {"ticks": 1, "days": day, "business days": day, "months": 28 * day}
    return runs.frequency.count * lengths[runs.frequency.kind]


def _cuts(length: int, bins: int) -> NDArray[np.int64]:
    """`k * length // bins` for k in 0..bins, without the product, which overflows with nanoseconds."""
    k, (whole, rest) = np.arange(bins + 1), divmod(length, bins)
    return k * whole + k * rest // bins


def _bin(edges: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(edges, times, "right") - 1


def _missing(stash: Stash, rows: slice) -> Bools:
    found = (missing_rows(stash, name, rows) for name in stash)
    return np.logical_or.reduce(
        [np.zeros(rows.stop - rows.start, np.bool_), *(one for one in found if one is not None)]
    )


def _gaps(runs: Runs, rows: slice) -> NDArray[np.int64]:
    """The rows of one entity that follow a gap."""
    low, high = np.searchsorted(runs.first, (rows.start + 1, rows.stop))
    return runs.first[low:high]


def _axis(stash: Stash, edges: NDArray[np.int64]) -> NDArray[Any]:
    """Times as matplotlib takes them: dates in UTC, or plain numbers."""
    unit = stash.clock.unit
    return edges if unit is None else edges.astype(f"datetime64[{'D' if unit == 'd' else unit}]")
