"""Runs: consecutive rows without a gap in time."""

from dataclasses import dataclass, replace

import numpy as np

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, Frequency, frequency, inferred, written
from tensorstash.stash.steps import count_steps, gaps_at, infer
from tensorstash.windows.shift import FARTHEST

_COMMONEST = 8  # of the steps of one part of the data: enough to find the most common step of all parts


@dataclass(frozen=True, slots=True)
class Runs:
    """Where each run begins and how many rows it has, and the step of time in all of them."""

    first: Int64s  # (runs,) its first row
    rows: Int64s  # (runs,)
    frequency: Frequency | None
    steps: tuple[tuple[str, int], ...] = ()  # the most common steps at gaps, and how often each occurs


def entity_runs(offsets: Int64s) -> Runs:
    """Every entity one run."""
    rows = np.diff(offsets)
    return Runs(offsets[:-1][rows > 0], rows[rows > 0], None)


def find_runs(
    offsets: Int64s, times: Int64s, clock: Clock, wanted: Duration | Frequency | None, tolerance: Duration | None
) -> Runs:
    """Split the rows of each entity where a step of time is not the frequency, `wanted` or inferred."""
    whole = entity_runs(offsets)
    if not (whole.rows > 1).any():
        return whole if wanted is None else replace(whole, frequency=_given(wanted, clock, tolerance))
    inner = whole.first[1:] - 1  # a pair (i, i + 1) across two entities is not a step
    if wanted is not None:
        chosen = _given(wanted, clock, tolerance)
        gaps = gaps_at(times, inner, chosen)
    else:
        chosen, gaps = infer(times, inner, clock, tolerance)
        _check_tolerance(chosen)
    if not len(gaps):
        return replace(whole, frequency=chosen)
    # both ascend, and no gap is an entity's first row; numpy's own union is a hundred times slower
    first = np.sort(np.concatenate([whole.first, gaps]), kind="stable")
    rows = np.diff(first, append=len(times))
    sizes, counts = np.unique(times[gaps] - times[gaps - 1], return_counts=True)
    common = np.argsort(-counts, kind="stable")[:3]
    steps = tuple((str(written(int(sizes[k]), clock)), int(counts[k])) for k in common)
    return Runs(first, rows, chosen, steps)


def _given(wanted: Duration | Frequency, clock: Clock, tolerance: Duration | None) -> Frequency:
    if isinstance(wanted, Frequency):
        return wanted
    step = frequency(wanted, clock, tolerance)
    if step.most_ticks > FARTHEST:
        raise ValueError(f"frequency must be at most 2**61 ticks of the times, got {wanted!r}.")
    _check_tolerance(step)
    return step


def _check_tolerance(step: Frequency) -> None:
    """Refuse a tolerance with which one step and two cannot be told apart."""
    if 2 * step.tolerance > step.least_ticks:
        raise ValueError(
            f"tolerance must be at most half of the frequency {step.text!r}, got "
            f"{str(written(step.tolerance, step.clock))!r}: a longer one hides missing rows. Shorten it, or give the "
            "frequency=."
        )


def pairs_per_frequency(offsets: Int64s, times: Int64s, clock: Clock) -> dict[Frequency, int]:
    """How many pairs of consecutive rows fit each frequency that the most common steps may stand for."""
    runs = entity_runs(offsets)
    if not (runs.rows > 1).any():
        return {}
    inner = runs.first[1:] - 1
    pairs = {}
    for step, count in count_steps(times, inner, 1).most_common(_COMMONEST):
        for candidate in inferred(step, clock, None):
            if candidate not in pairs:
                gaps = None if candidate.kind == "ticks" else gaps_at(times, inner, candidate)
                pairs[candidate] = count if gaps is None else len(times) - 1 - len(inner) - len(gaps)
    return pairs
