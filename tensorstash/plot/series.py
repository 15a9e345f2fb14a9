"""`ts.plot.series`: columns of one entity, or a few, over time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.calendar import GivenStep
from tensorstash.common.checks import names_in, shown
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.plot.axes import COLOURS, DASHES, WIDTH, check_stash, label_times, legend_beside, pyplot, time_axis
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import find_runs, step_of
from tensorstash.windows.splits import GivenTime

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMES = 20  # a larger vocabulary is not written along an axis


def series(
    stash: Stash,
    entity: Any,
    columns: Sequence[str],
    *,
    start: GivenTime | None = None,
    stop: GivenTime | None = None,
    frequency: GivenStep | None = None,
    axes: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """Draw columns over time, each column in its own axes, with one line for each entity and each number of a pack.

    A line is broken where time steps or values (NaN, infinite, or code -1) are missing; a value alone between breaks
    is a dot. Codes are drawn as steps, labelled with the names of a small vocabulary.

    Args:
        stash: the stash that holds the columns.
        entity: one of `stash.entities`, or a list of some; `None` if the stash has none.
        columns: names of columns.
        start: the first time that is drawn: a text such as "2024-01-31", a date or datetime, or an integer in the unit
            of the times. `None`: that of the first row.
        stop: the time before which drawing stops, written likewise. `None`: the last row is drawn too.
        frequency: the step of time, such as "1h", or a calendar, all times that exist; a missing step is a gap. `None`
            takes that of the load, else the most common step.
        axes: axes to draw on, one for each column; `None` makes a figure.

    Returns:
        The axes, one for each column. Without a time column they count the rows of an entity; dates are shown in the
        zone of the times.

    Raises:
        ColumnError: a column or the entity does not exist. ValueError: there is no row in these times. ImportError:
            matplotlib is missing; the message names the extra.

    Example:
        >>> import pytest, tensorstash as ts
        >>> matplotlib = pytest.importorskip("matplotlib")
        >>> matplotlib.use("Agg")
        >>> sales = {"shop": ["A", "A", "B"], "day": [1, 2, 1], "sold": [5, 6, 7]}
        >>> stash = ts.load(sales, entity="shop", time="day")
        >>> axes = ts.plot.series(stash, ["A", "B"], ["sold"])
        >>> [text.get_text() for text in axes[0].get_legend().get_texts()]
        ['A', 'B']
    """
    names = names_in(columns, "columns")
    axes = _axes_of(axes, len(names))
    check_stash(stash)
    entities = entity if isinstance(entity, list) else [entity]
    if not names or not entities:
        raise ValueError(f"{'entity' if names else 'columns'} must name at least one, got none.")
    all_series = [stash.series(one) for one in entities]
    for name in names:
        stash[name]  # raises ColumnError before anything is drawn
    drawn = [_rows_drawn(stash, series, start, stop, frequency) for series in all_series]
    if not axes:
        size = (WIDTH, 0.8 + 1.6 * len(names))
        grid = pyplot("series").subplots(len(names), squeeze=False, sharex=True, figsize=size, layout="constrained")
        axes = [*grid[1][:, 0]]
    for one, series, (rows, times, gaps) in zip(entities, all_series, drawn):
        of = [str(one)] if len(entities) > 1 else []
        for name, column_axes in zip(names, axes):
            _draw(column_axes, stash, name, series[name][rows], times=times, gaps=gaps, of=of)
    for column_axes in axes:
        label_times(column_axes, stash.time_name or "row of the entity", stash.clock)
    for upper in axes[:-1]:
        upper.set_xlabel("")
    if stash.entity_names:
        title = ", ".join(stash.entity_names)
        axes[0].set_title(title if len(entities) > 1 else f"{title} {entity}", loc="left")
    return axes


def _axes_of(axes: "Sequence[Axes] | None", count: int) -> "list[Axes]":
    """The axes that were given, one for each column; none if there are to be new ones."""
    given = [*axes] if isinstance(axes, (list, tuple, np.ndarray)) else []
    pyplot("series", *given)
    if axes is not None and len(given) != count:
        raise ValueError(f"axes must be a list of axes, one for each of {count} columns, got {shown(axes)}.")
    return given


def _rows_drawn(
    stash: Stash,
    series: dict[str, torch.Tensor],
    start: GivenTime | None,
    stop: GivenTime | None,
    frequency: GivenStep | None,
) -> tuple[slice, Int64s, Bools]:
    """The rows of a series between `start` and `stop`, their times, and which rows follow a gap."""
    if stash.time is None:
        if start is not None or stop is not None:
            raise ValueError("start= and stop= need a time column; this stash has none. Load it with time=.")
        count = len(next(iter(series.values())))
        return slice(0, count), np.arange(count), np.zeros(count, np.bool_)
    times = series[str(stash.time_name)].numpy()
    if not len(times):
        raise ValueError("A series is drawn from its rows, and this entity has none. Choose another entity.")
    gaps, step = np.zeros(len(times), np.bool_), step_of(stash, frequency, None)
    gaps[find_runs(np.array([0, len(times)]), times, stash.clock, step).first] = True
    low = 0 if start is None else int(np.searchsorted(times, stash.clock.parse(start, "start=")))
    high = len(times) if stop is None else int(np.searchsorted(times, stash.clock.parse(stop, "stop=")))
    if low >= high:
        first, last = (stash.clock.format(int(times[k])) for k in (0, -1))
        raise ValueError(
            f"start and stop must enclose at least one row, got {start} to {stop}; the times are {first} to {last}."
        )
    return slice(low, high), times[low:high], gaps[low:high]


def _draw(
    axes: "Axes", stash: Stash, name: str, values: torch.Tensor, *, times: Int64s, gaps: Bools, of: list[str]
) -> None:
    info = stash.about(name)
    flat = values.flatten(1) if values.ndim > 1 else values[:, None]
    lines = len(axes.lines) // 2  # lines of entities that were drawn before
    for k in range(flat.shape[1]):
        numbers = flat[:, k].to(torch.float64).numpy()
        if info.is_coded:
            numbers = np.where(numbers < 0, np.nan, numbers)
        label = info.members[k] if len(info.members) > 1 else str(k)
        label = " ".join([*of, label]) if flat.shape[1] > 1 else " ".join(of) or label
        nth = lines + k
        colour, dashes = COLOURS[nth % len(COLOURS)], DASHES[nth // len(COLOURS) % len(DASHES)]
        moments, drawn, alone = _line(times, numbers, gaps)
        steps = "steps-post" if info.is_coded or values.dtype == torch.bool else "default"
        axes.plot(time_axis(stash, moments), drawn, dashes, linewidth=1, color=colour, drawstyle=steps, label=label)
        axes.plot(time_axis(stash, moments[alone]), drawn[alone], ".", markersize=3, color=colour)
    if of or flat.shape[1] > 1:
        legend_beside(axes, axes.get_legend_handles_labels()[0])
    if info.kind == "category" and len(stash.vocabulary(name)) <= _MOST_NAMES:
        labels = [*map(str, stash.vocabulary(name)), *(["(unknown)"] if info.unknown else [])]
        axes.set_yticks(range(len(labels)), labels)
    axes.set_ylabel(name if info.unit is None else f"{name} ({info.unit})")
    axes.spines[["top", "right"]].set_visible(False)


def _line(times: Int64s, values: NDArray[np.float64], gaps: Bools) -> tuple[Int64s, NDArray[np.float64], Int64s]:
    """Times and values of a line, with NaN where it is broken, and which points stand alone; see `series`."""
    finite = np.isfinite(values)
    opens = gaps.copy()
    opens[1:] |= ~finite[:-1]
    piece = np.cumsum(opens)[finite]
    times, values = times[finite], values[finite]
    new = np.flatnonzero(np.diff(piece)) + 1
    ends = np.concatenate([[0], new, [len(piece)]])
    alone = ends[:-1][np.diff(ends) == 1]
    # a NaN has the last time of its piece: steps would be drawn up to a later time
    places = alone + np.searchsorted(new, alone, "right")
    return np.insert(times, new, times[new - 1]), np.insert(values, new, np.nan), places
