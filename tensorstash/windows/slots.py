"""Slots: the steps of time that windows count in, each with one row or none.

    run 0: lead | fragment 0 | empty | fragment 1 | tail | run 1: lead | fragment 2 | tail | ...

A fragment is consecutive rows without an empty slot between them. The lead and the tail are the empty slots before and
after each run. Without any empty slot, slots are rows.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.calendar import Calendar, Step
from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Bools, Int8s, Int64s
from tensorstash.errors import DataError
from tensorstash.native.kernel import Fragments
from tensorstash.stash.month_days import month_days
from tensorstash.stash.stash import Stash
from tensorstash.windows.intervals import Ranges
from tensorstash.windows.runs import Runs

_MOST_SLOTS = 1 << 62


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the fragments lie among the slots, which are numbered from 0 over all runs."""

    fragments: Fragments
    joined: Bools  # (fragments,) whether it continues the run of the fragment before it
    frequency: Step | None
    lead: int
    tail: int
    days: Int8s | None  # (fragments,) the day of the month that steps of months keep
    are_rows: bool = False  # whether every slot is the row of its number

    @property
    def total(self) -> int:
        """The number of slots."""
        first, _, rows = self.fragments
        return int(first[-1] + rows[-1]) + self.tail if len(first) else 0


def lead_and_tail(min_history: int | None, min_horizon: int | None, history: int, horizon: int) -> tuple[int, int]:
    """How many slots of windows may lie before and after their run; at least one slot of a window lies in it."""
    lead = _most_empty(min_history, history, int(not horizon), "history")
    return lead, _most_empty(min_horizon, horizon, int(not history), "horizon")


def _most_empty(least: int | None, whole: int, lowest: int, what: str) -> int:
    """How many slots of the history or horizon may lie outside the run, where at least `least` lie in it."""
    if least is None:
        return 0
    inside = at_least(min(lowest, whole), least, f"min_{what}")
    if inside > whole:
        raise ValueError(f"min_{what} must be at most the {what}, {whole}, got {least}.")
    return whole - inside


def number_slots(runs: Runs, stash: Stash, *, joined: bool, lead: int, tail: int) -> Slots:
    """Number the slots; with `joined`, runs of rows a whole number of steps apart become one run with empty slots."""
    steps = np.zeros(len(runs.first), np.int64)  # steps of time from the fragment before, 0 where a run begins
    offsets, days = stash.offsets.numpy(), None
    if stash.time is not None and runs.frequency is not None and runs.frequency.kind == "months":
        days = month_days(stash)[np.searchsorted(offsets, runs.first, "right") - 1]
    if not len(steps) or (not joined and not lead and not tail):
        fragments = Fragments(runs.first, runs.first, runs.rows)
        return Slots(fragments, steps > 0, runs.frequency, 0, 0, days, are_rows=True)
    if joined and stash.time is not None and runs.frequency is not None:
        times = stash.time.numpy()
        # both ascend; numpy's own isin is ten times slower
        after = np.flatnonzero(offsets[np.searchsorted(offsets, runs.first)] != runs.first)
        rows = runs.first[after]
        steps[after] = runs.frequency.steps(times[rows - 1], times[rows])
    between = np.where(steps > 0, steps - 1, lead + tail)
    if between.sum(dtype=np.float64) > _MOST_SLOTS:
        raise DataError(
            "gaps='mask' counts at most 2**62 slots; the gaps of these times have more. Give a longer frequency=, or "
            "take gaps='split'."
        )
    between[:1] = lead
    first = np.cumsum(between + np.concatenate([[0], runs.rows[:-1]])[: len(between)], dtype=np.int64)
    slots = Slots(Fragments(first, runs.first, runs.rows), steps > 0, runs.frequency, lead, tail, days)
    _check_outer_times(slots, stash)
    return slots


def with_tail(slots: Slots, stash: Stash, tail: int) -> Slots:
    """The same runs with another number of empty slots after each."""
    run = np.cumsum(~slots.joined) - 1
    first = slots.fragments.first + (tail - slots.tail) * run
    slots = replace(slots, fragments=slots.fragments._replace(first=first), tail=tail, are_rows=False)
    _check_outer_times(slots, stash)
    return slots


def _check_outer_times(slots: Slots, stash: Stash) -> None:
    """Raise `DataError` for slots before or after the rows whose times do not fit into the type of the times."""
    first, last = stash.time_range
    if slots.frequency is None or isinstance(slots.frequency, Calendar) or first is None or last is None:
        return  # of a calendar only slots whose times are asked for need some
    bits, day = 32 if stash.clock.unit == "d" else 64, 0 if slots.days is None else int(slots.days.max(initial=0))
    ends = (last, slots.tail, day, "after the last"), (first, -slots.lead, 0, "before the first")
    for time, steps, kept, what in ends:
        moved = slots.frequency.advance_one(time, steps, kept)
        if moved is None or not -1 << (bits - 1) <= moved < 1 << (bits - 1):
            raise DataError(
                f"Empty slots {what} row have times, which must fit into {bits} bits; {abs(steps):,} x "
                f"{slots.frequency.text!r} from {stash.clock.format(time)} does not. Shorten the window, convert the "
                "times to a coarser unit, or leave rows so far away out with filter=."
            )


def run_edges(slots: Slots) -> tuple[Int64s, Int64s]:
    """The first slot of each run and the one after its last, lead and tail included, both `(runs,)`."""
    starts = slots.fragments.first[~slots.joined] - slots.lead
    return starts, np.append(starts[1:], slots.total)


def run_rows(slots: Slots, rows: int) -> tuple[Int64s, Int64s]:
    """The first row of each run and the one after its last, of `rows` in all, both `(runs,)`."""
    first = slots.fragments.row[~slots.joined]
    return first, np.append(first[1:], rows)[: len(first)]


def runs_at(slots: Slots, rows: Int64s) -> NDArray[np.intp]:
    """The number of the run of each row."""
    return np.searchsorted(slots.fragments.row[~slots.joined], rows, "right") - 1


def _fragment(edges: Int64s, at: Int64s) -> NDArray[np.intp]:
    """The last fragment that begins at or before each number; before all fragments, the first."""
    return np.maximum(np.searchsorted(edges, at, "right") - 1, 0)


def nearest_rows(slots: Slots, at: Int64s) -> tuple[Int64s, Int64s]:
    """The row of each slot, of any shape, and 0; for an empty slot the row before it and its distance from that row.

    In the lead of a run it is the run's first row, and the distance is negative.
    """
    if slots.are_rows:
        rows = np.clip(at, 0, slots.total - 1)
        return rows, at - rows
    k = _fragment(slots.fragments.first, at)
    if slots.lead and len(slots.fragments.first) > 1:
        following = np.minimum(k + 1, len(slots.fragments.first) - 1)
        past_tail = at >= slots.fragments.first[k] + slots.fragments.rows[k] + slots.tail
        k = np.where(past_tail & ~slots.joined[following], following, k)
    after = at - slots.fragments.first[k]
    inside = np.clip(after, 0, slots.fragments.rows[k] - 1)
    return slots.fragments.row[k] + inside, after - inside


def rows_from(slots: Slots, at: Int64s) -> Int64s:
    """The first row at or after each slot."""
    if slots.are_rows:
        return np.clip(at, 0, slots.total)
    k = _fragment(slots.fragments.first, at)
    return slots.fragments.row[k] + np.clip(at - slots.fragments.first[k], 0, slots.fragments.rows[k])


def slots_at(slots: Slots, rows: Int64s) -> Int64s:
    """The slot of each row; for the row number after the last one, the slot after the last row."""
    if slots.are_rows:
        return rows
    k = _fragment(slots.fragments.row, rows)
    return slots.fragments.first[k] + rows - slots.fragments.row[k]


def empty_slots(slots: Slots) -> Ranges:
    """The ranges `[low, high)` of slots without a row, in gaps and before runs but not after them."""
    stops = slots.fragments.first + slots.fragments.rows
    stops[:-1] += np.where(slots.joined[1:], 0, slots.tail)
    low, high = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1]]), slots.fragments.first
    inside = low < high
    return low[inside], high[inside]


def steps_after(slots: Slots, times: Int64s, rows: Int64s, steps: Int64s) -> Int64s:
    """The time that many steps after each row, or before it; all `(n,)`."""
    assert slots.frequency is not None
    days = 0 if slots.days is None else slots.days[_fragment(slots.fragments.row, rows)]
    return slots.frequency.advance(times[rows], steps, days)


def steps_to(slots: Slots, times: Int64s, rows: Int64s, moments: Int64s) -> Int64s:
    """How many steps after each row is the first slot at or after a moment; negative where it is before the row."""
    assert slots.frequency is not None
    steps = slots.frequency.passed(times[rows], moments) - 2
    while (early := steps_after(slots, times, rows, steps) < moments).any():
        steps += early
    return steps


def slots_from(slots: Slots, stash: Stash, runs: tuple[Int64s, Int64s, Int64s], row: Int64s, moments: Int64s) -> Int64s:
    """The first slot at or after a moment in each run, of which empty slots have times as well; behind it `stop`.

    `runs` are the first row, the one after the last, and `stop`; `row` is the first of the rows at or after the moment.
    """
    low, high, stop = runs
    first = np.where(row < high, slots_at(slots, np.minimum(row, high - 1)), stop)
    if slots.frequency is None or stash.time is None:
        return first
    before = slots_at(slots, np.maximum(row - 1, low))
    which = np.flatnonzero((row > low) & (first - before > 1))
    steps = steps_to(slots, stash.time.numpy(), row[which] - 1, moments[which])
    first[which] = np.minimum(first[which], before[which] + steps)
    return first


def times_at(slots: Slots, times: Int64s, at: Int64s) -> Int64s:
    """The time of each slot, any shape; of an empty slot by the step of time from the nearest row of its run."""
    rows, distance = nearest_rows(slots, at)
    at_rows, empty = times[rows], distance != 0
    if empty.any():
        if slots.frequency is None:
            raise ValueError(
                "The time of a slot without a row follows from the step of time, which is not known with gaps='ignore' "
                "or where no entity has two rows. Windows without a horizon go by the time of their last row; for "
                "others give a frequency=, with gaps='split' or gaps='mask'."
            )
        if isinstance(slots.frequency, Calendar):
            slots.frequency.check_reach(at_rows[empty], distance[empty])
        at_rows[empty] = steps_after(slots, times, rows[empty], distance[empty])
    return at_rows
