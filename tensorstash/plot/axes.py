"""Shared by all plots: colours, axes of time, lanes of entities and legends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import shown
from tensorstash.common.clock import Clock, zone_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import type_text
from tensorstash.stash.printed import entity_text
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

WIDTH = 7.5  # inches of a figure: its letters are as large as those of a page on which it stands
# lines differ in lightness, and then in dashes; all stand out from a white ground and from a black one
COLOURS = ("#1f6ba8", "#d9702a", "#9cc3e0")
DASHES = ("-", "--", ":", "-.")
# of the ticks of an axis whose finest step is a year, a month, a day, an hour, a minute, a second
_DATES = ("%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S.%f")
_BEGINS = ("", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M")  # a year that begins, a day, a minute
_BESIDE = ("", "%Y", "%Y", "%-d %b %Y", "%-d %b %Y", "%-d %b %Y %H:%M")  # what the ticks leave out


def pyplot(name: str, *axes: object) -> Any:
    """The drawing functions of matplotlib, for `ts.plot.<name>`; refuses axes that are not those of matplotlib."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError(f"ts.plot.{name} draws with matplotlib: pip install 'tensorstash[plot]'.") from error
    if wrong := [one for one in axes if one is not None and not isinstance(one, Axes)]:
        raise TypeError(f"axes must be those of matplotlib, such as plt.gca(), or None, got {shown(wrong[0])}.")
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


def label_times(axes: Any, name: str, clock: Clock) -> None:
    """Label an axis with the name of its times, and with their dates in their zone, which are drawn in UTC."""
    axes.set_xlabel(name if clock.zone is None else f"{name} ({clock.zone})")
    if clock.unit is None:
        return
    drawn = zone_of(clock.zone)
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    low, high = axes.get_xlim()  # days
    # there matplotlib would begin anew with each month, and name the 31st or 29th beside the 1st
    by_month = not 10 < high - low < 41
    locator = AutoDateLocator(tz=drawn, interval_multiples=by_month)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formats: Any = {"formats": [*_DATES], "zero_formats": [*_BEGINS], "offset_formats": [*_BESIDE]}
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, drawn, **formats))  # type: ignore[no-untyped-call]


def time_axis(stash: Stash, edges: Int64s) -> NDArray[Any]:
    """Times as matplotlib takes them: moments in UTC, or plain numbers."""
    unit = stash.clock.unit
    return edges if unit is None else edges.astype(f"datetime64[{'D' if unit == 'd' else unit}]")


def chosen_entities(stash: Stash, most: int) -> Int64s:
    """The indices of at most `most` entities at equal distances."""
    count = len(stash.offsets) - 1
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def entity_lanes(plt: Any, axes: Any, stash: Stash, chosen: Int64s, most_names: int) -> Any:
    """Axes with a lane for each entity, of which at most `most_names` are named; `None` makes a new figure."""
    if axes is None:
        _, axes = plt.subplots(figsize=(WIDTH, 1.3 + min(6.0, 0.3 * len(chosen))), layout="constrained")
    named = np.arange(0, len(chosen), max(1, -(-len(chosen) // most_names)))
    axes.set_yticks(named + 0.5, [entity_text(stash, int(chosen[k])) for k in named])
    count = len(stash.offsets) - 1
    share = "" if len(chosen) == count else f", {len(chosen)} of {count:,}"
    axes.set_ylabel(f"{', '.join(stash.entity_names)}{share}")
    return axes


def legend_beside(axes: Any, handles: Sequence[Any]) -> None:
    """A legend to the right of the axes, where it covers neither data nor a title."""
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
