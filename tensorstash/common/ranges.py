"""Half-open ranges of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tensorstash.common.dtypes import Bools, Int64s  # not at run time: it imports torch


def true_ranges(mask: Bools, start: int = 0) -> tuple[Int64s, Int64s]:
    """The ranges `[low, high)` of true values in a mask, whose first value is that of position `start`."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)) + start
    return edges[::2], edges[1::2]
