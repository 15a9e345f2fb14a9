"""Runs: consecutive rows without a gap in time."""

from dataclasses import dataclass, replace

import numpy as np

from tensorstash.common.calendar import Calendar, GivenStep, Step, is_calendar
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, Frequency, frequency, inferred, written
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import check_in_calendar, count_steps, gaps_at, infer, own_calendar
from tensorstash.windows.shift import FARTHEST

_COMMONEST = 8  # of the steps of one part of the data: enough to find the most common step of all parts


@dataclass(frozen=True, slots=True)
class Runs:
    """Where each run begins and how many rows it has, and the step of time in all of them."""

    first: Int64s  # (runs,) its first row
    rows: Int64s  # (runs,)
    frequency: Step | None
    steps: tuple[tuple[str, int], ...] = ()  # the most common steps at gaps, and how often each occurs


def entity_runs(offsets: Int64s) -> Runs:
    """Every entity one run."""
    rows = np.diff(offsets)
    return Runs(offsets[:-1][rows > 0], rows[rows > 0], None)


def step_of(stash: Stash, given: GivenStep | Step | None, tolerance: Duration | None) -> Step | None:
    """The step of time of `frequency=`, else that of the stash; `None` if it is to be inferred."""
    own = own_calendar(stash) if given is None else None
    wanted = given if given is not None else own or stash.info.frequency
    if wanted is None or isinstance(wanted, Frequency):
        return wanted
    if isinstance(wanted, Calendar) or is_calendar(wanted):
        if tolerance is not None:
            raise ValueError("tolerance= is about steps of one length, and a calendar has none. Leave it out.")
        calendar = wanted if isinstance(wanted, Calendar) else read_calendar(stash, wanted)
        if own is None and stash.time is not None:  # a load has checked its own
            check_in_calendar(calendar, stash.time.numpy(), stash.offsets.numpy(), stash.entity_at)
        return calendar
    step = frequency(wanted, stash.clock, tolerance)
    if step.most_ticks > FARTHEST:
        raise ValueError(f"frequency must be at most 2**61 ticks of the times, got {wanted!r}.")
    _check_tolerance(step)
    return step


def read_calendar(stash: Stash, times: GivenStep) -> Calendar:
    """The calendar of a sequence of times, in the unit of the times of a stash."""
    from tensorstash.sources import given_times  # here, because it imports pyarrow

    return given_times.calendar_of(given_times.times_of(times), stash.clock)


def find_runs(
    offsets: Int64s, times: Int64s, clock: Clock, step: Step | None, tolerance: Duration | None = None
) -> Runs:
    """Split the rows of each entity where a step of time is not the given or, with the tolerance, the inferred one."""
    whole = entity_runs(offsets)
    if not (whole.rows > 1).any():
        return replace(whole, frequency=step)
    inner = whole.first[1:] - 1  # a pair (i, i + 1) across two entities is not a step
    if step is not None:
        chosen, gaps = step, gaps_at(times, inner, step)
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
    for step, count in count_steps(times, inner).most_common(_COMMONEST):
        for candidate in inferred(step, clock, None):
            if candidate not in pairs:
                gaps = None if candidate.kind == "ticks" else gaps_at(times, inner, candidate)
                pairs[candidate] = count if gaps is None else len(times) - 1 - len(inner) - len(gaps)
    return pairs
