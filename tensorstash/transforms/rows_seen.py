"""Which rows of a stash the windows see: what a scaler is fitted on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorstash.stash.row_statistics import Rows
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import stash_of
from tensorstash.windows.intervals import Ranges, covered, union
from tensorstash.windows.slots import rows_from
from tensorstash.windows.windows import Windows

_WINDOWS = 1 << 16  # windows whose rows are looked up at a time


def rows_seen(source: Windows | Stash, stash: Stash) -> Rows:
    """The rows of a stash, the windows' own or a table, that lie in a window, or all rows of it, grouped by entity."""
    if isinstance(source, Stash):
        return Rows(np.array([0]), np.array([source.rows]), source.offsets.numpy())
    at, none = source.placement, np.empty(0, np.int64)
    ranges = [(none, none)]
    time_spans = [time_span for time_span in at.time_spans if time_span.stash is stash]
    if stash is at.stash and at.slot_spans and len(source):
        if at.points is None:
            start, stop = covered(at.intervals, at.length)
        else:
            start, stop = at.points.slot - at.history, at.points.slot + at.horizon
        ranges.append((rows_from(at.slots, start), rows_from(at.slots, stop)))
    for low in range(0, len(source) if time_spans else 0, _WINDOWS):
        ids = np.arange(low, min(low + _WINDOWS, len(source)))
        anchors = at.anchor_slots(ids)
        ranges.append(_united([of.ranges(at.stretches(of, ids, anchors)) for of in time_spans]))
    return Rows(*_united(ranges), stash.offsets.numpy())


def entities_seen(source: Windows | Stash) -> Rows:
    """The entities that have a window, or all of a stash, as rows of its static columns."""
    count = len(stash_of(source).offsets) - 1
    seen = np.arange(count) if isinstance(source, Stash) else np.flatnonzero(source.per_entity()["count"].numpy())
    return Rows(seen, seen + 1, np.array([0, count]))


def one_group(rows: Rows) -> Rows:
    """The same rows, all in one group."""
    return replace(rows, offsets=rows.offsets[[0, -1]])


def _united(ranges: Sequence[Ranges]) -> Ranges:
    low, high = map(np.concatenate, zip(*ranges))
    filled = low < high
    return union(low[filled], high[filled])
