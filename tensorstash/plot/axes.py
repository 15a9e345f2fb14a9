"""Shared by all plots: colours, axes of time and bins of ticks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import shown
from tensorstash.common.clock import zone_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import type_text
from tensorstash.errors import DataError
from tensorstash.stash.printed import entity_text
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

WIDTH = 7.5  # inches of a figure: its letters are as large as those of a page on which it stands
# lines differ in lightness, and then in dashes
COLOURS = ("#14507a", "#c8641b", "#9cc3e0")
DASHES = ("-", "--", ":", "-.")
# of the ticks of an axis whose finest step is a year, a month, a day, an hour, a minute, a second
_DATES = ("%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S.%f")
_BEGINS = ("", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M")  # a year that begins, a day, a minute
_BESIDE = ("", "%Y", "%Y", "%-d %b %Y", "%-d %b %Y", "%-d %b %Y %H:%M")  # what the ticks leave out


def pyplot(name: str) -> Any:
    """The drawing functions of matplotlib, for `ts.plot.<name>`."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"ts.plot.{name} draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    return plt


def check_stash(stash: object) -> None:
    """Raise `TypeError` for anything but a stash, and `ValueError` for one with several versions of a time."""
    if not isinstance(stash, Stash):
        remedy = " Take windows.stash." if isinstance(stash, Windows) else ""
        raise TypeError(f"The first argument must be a stash, got {type_text(stash)}.{remedy}")
    if stash.known is not None:
        raise ValueError(
            "A picture over time has a row for each time; the rows of this stash are versions of times, known by "
            f"{stash.known_name!r}. Load one version of each, without known=."
        )


def check_axes(plt: Any, axes: object) -> None:
    """Raise `TypeError` for anything but axes of matplotlib."""
    if not isinstance(axes, plt.Axes):
        raise TypeError(f"axes must be those of matplotlib, such as plt.gca(), or None, got {shown(axes)}.")


def time_label(stash: Stash) -> str:
    """The label of an axis of times."""
    return label_in_zone(stash.time_name, stash.clock.zone) if stash.time_name else "row of the entity"


def label_in_zone(name: str, zone: str | None) -> str:
    """The label of an axis of times of a zone."""
    return name if zone is None else f"{name} ({zone if _is_known(zone) else 'UTC'})"


def show_zone(axes: Any, zone: str | None) -> None:
    """Label an axis of dates, which are drawn in UTC, with the dates of a zone."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    drawn = zone_of(zone if _is_known(zone) else None)
    locator = AutoDateLocator(tz=drawn)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formats: Any = {"formats": [*_DATES], "zero_formats": [*_BEGINS], "offset_formats": [*_BESIDE]}
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, drawn, **formats))  # type: ignore[no-untyped-call]


def show_times(axes: Any, stash: Stash) -> None:
    """Label an axis of the times of a stash with their dates, if they are dates."""
    if stash.clock.unit is not None:
        show_zone(axes, stash.clock.zone)


def _is_known(zone: str | None) -> bool:
    """Whether this machine knows a zone. A file of another machine may name one that it does not: UTC is shown then."""
    try:
        zone_of(zone)
    except DataError:
        return False
    return True


def time_axis(stash: Stash, edges: Int64s) -> NDArray[Any]:
    """Times as matplotlib takes them: moments in UTC, or plain numbers."""
    unit = stash.clock.unit
    return edges if unit is None else edges.astype(f"datetime64[{'D' if unit == 'd' else unit}]")


def cuts_of(length: int, bins: int) -> Int64s:
    """`k * length // bins` for k in 0..bins, without the product, which overflows with nanoseconds."""
    k, (whole, rest) = np.arange(bins + 1), divmod(length, bins)
    return k * whole + k * rest // bins


def bin_of(edges: Int64s, times: Int64s) -> Int64s:
    """The bin of each time."""
    return np.searchsorted(edges, times, "right") - 1


def entity_lanes(plt: Any, axes: Any, stash: Stash, chosen: Int64s, most_names: int) -> Any:
    """Axes with a lane for each entity, of which at most `most_names` are named; `None` makes a new figure."""
    if axes is None:
        _, axes = plt.subplots(figsize=(WIDTH, 1.3 + min(6.0, 0.3 * len(chosen))), layout="constrained")
    named = np.arange(0, len(chosen), max(1, -(-len(chosen) // most_names)))
    axes.set_yticks(named + 0.5, [entity_text(stash, int(chosen[k])) for k in named])
    count = len(stash.offsets) - 1
    shown = "" if len(chosen) == count else f", {len(chosen)} of {count:,}"
    axes.set_ylabel(f"{', '.join(stash.entity_names)}{shown}")
    return axes


def legend_above(axes: Any, colours: Mapping[str, str], edge: str | None = None) -> None:
    """A legend of coloured patches above the axes."""
    from matplotlib.patches import Patch

    if not colours:
        return
    handles = [Patch(facecolor=colour, edgecolor=edge, label=label) for label, colour in colours.items()]
    lines = -(-len(handles) // 4)  # a wider legend would leave no room for the axes
    columns = -(-len(handles) // lines)
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, frameon=False)
