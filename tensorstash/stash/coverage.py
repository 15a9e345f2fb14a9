"""Which times the entities cover, found by bisection: it reads a few times of each, whatever the number of rows."""

import numpy as np
from numpy.typing import NDArray

from tensorstash.stash.protocol import StashLike

_MOST_ENTITIES = 20
_BINS = 120


def coverage(stash: StashLike) -> tuple[list[int], NDArray[np.float64]]:
    """The rows of some entities in equal stretches of time, as shares of the most that any of them has in one.

    Without a time column the stretches are of the numbers of rows.

    Returns:
        The entities, as indices, at most 20 at equal distances; and `(entities, bins)` shares from 0 to 1.
    """
    offsets = stash.offsets.numpy()
    count = len(offsets) - 1
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTITIES)).astype(np.int64)).tolist()
    low, high = stash.time_range
    times = None if stash.time is None else stash.time.numpy()
    if times is None or low is None or high is None:
        low, high = 0, int(np.diff(offsets).max(initial=1)) - 1
    # in Python's integers: nanoseconds times a number of bins overflow
    bins = min(_BINS, high + 1 - low)
    edges = np.array([low + (high + 1 - low) * k // bins for k in range(bins)], np.int64)
    rows = np.zeros((len(chosen), bins), np.int64)
    for line, entity in zip(rows, chosen):
        first, end = int(offsets[entity]), int(offsets[entity + 1])
        places = np.minimum(edges, end - first) if times is None else np.searchsorted(times[first:end], edges)
        line[:] = np.diff(places, append=end - first)
    return chosen, rows / max(int(rows.max(initial=0)), 1)
