"""What the pictures share: axes of time, bins of ticks, and what may be drawn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

# lines differ in lightness, and then in dashes
COLOURS = ("#14507a", "#c8641b", "#9cc3e0")
DASHES = ("-", "--", ":", "-.")


def check_stash(stash: object) -> None:
    """Refuse what is not a stash."""
    if not isinstance(stash, Stash):
        remedy = " Take windows.stash." if isinstance(stash, Windows) else ""
        raise TypeError(f"A stash is drawn; got a {type(stash).__name__}.{remedy}")


def time_label(stash: Stash) -> str:
    """What is written along an axis of times."""
    zone = "" if stash.clock.zone is None else " (UTC)"
    return f"{stash.time_name}{zone}" if stash.time_name else "row of the entity"


def time_axis(stash: Stash, edges: NDArray[np.int64]) -> NDArray[Any]:
    """Times as matplotlib takes them: dates in UTC, or plain numbers."""
    unit = stash.clock.unit
    return edges if unit is None else edges.astype(f"datetime64[{'D' if unit == 'd' else unit}]")


def cuts_of(length: int, bins: int) -> NDArray[np.int64]:
    """`k * length // bins` for k in 0..bins, without the product, which overflows with nanoseconds."""
    k, (whole, rest) = np.arange(bins + 1), divmod(length, bins)
    return k * whole + k * rest // bins


def bin_of(edges: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bin of each time."""
    return np.searchsorted(edges, times, "right") - 1
