"""Entities without a window: the warning that says how many there are, why, and names one for each reason."""

import warnings

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import describe_step
from tensorstash.windows.intervals import Intervals, count_before
from tensorstash.windows.placement import Placement
from tensorstash.windows.splits import entity_edges


def warn_of_absent(placement: Placement, before_require: Intervals, *, gaps_told: bool) -> None:
    """Warn of entities that have rows but no window; those with gaps are left out if another warning names gaps."""
    slots = placement.slots
    if placement.intervals is before_require and len(before_require.base) == np.count_nonzero(~slots.joined):
        return  # each run has windows
    edges, rows = entity_edges(placement), np.diff(placement.offsets)
    counts = np.diff(count_before(placement.intervals, edges))
    absent = np.flatnonzero((counts == 0) & (rows > 0))
    if not len(absent):
        return
    needed = max(1, placement.length - slots.lead - slots.tail)
    in_run = np.diff(count_before(before_require, edges))[absent] > 0
    short = ~in_run & (rows[absent] < needed)
    few, apart, incomplete = absent[short], absent[~in_run & ~short], absent[in_run]
    reasons, entities = [], placement.stash.entities
    if len(few):
        reasons.append(
            f"{len(few):,} with too few rows, such as {entities[few[0]]!r} with {rows[few[0]]:,} of {needed:,} "
            "(shorten the window, or give min_history=)"
        )
    if len(apart) and not gaps_told:
        assert slots.frequency is not None
        reasons.append(
            f"{len(apart):,} with gaps or another step of time than {slots.frequency.text!r}, such as "
            f"{entities[apart[0]]!r} with steps of {_other_step(placement, apart[0])} (load these series apart, or see "
            "frequency= and gaps=)"
        )
    if len(incomplete):
        reasons.append(
            f"{len(incomplete):,} with missing values that require= refuses, such as {entities[incomplete[0]]!r}"
        )
    if reasons:
        total = len(absent) - (len(apart) if gaps_told else 0)
        every = np.count_nonzero(rows)
        warnings.warn(f"{total:,} of {every:,} entities have no window: {'; '.join(reasons)}.", stacklevel=3)


def _other_step(placement: Placement, entity: np.int64) -> str:
    """The most common step of an entity that is not the frequency."""
    assert placement.times is not None
    assert placement.slots.frequency is not None
    times = placement.times[placement.offsets[entity] : placement.offsets[entity + 1]]
    gaps: Int64s = np.diff(times)[~placement.slots.frequency.follows(times[:-1], times[1:])]
    steps, counts = np.unique(gaps, return_counts=True)
    return describe_step(int(steps[counts.argmax()]), placement.stash.clock)
