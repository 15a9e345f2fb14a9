"""What gaps in time most likely are, for messages: each remedy has been tried on the times."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tensorstash.common.clock import UTC_NAMES, Clock, from_wall_clock, wall_clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Frequency, frequency, written
from tensorstash.errors import DataError
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import count_steps, gaps_at
from tensorstash.windows.runs import Runs

_MOST_ROWS = 1 << 21  # that remedies are tried on, the first ones
_SAMPLE = 1 << 16  # steps
# zones whose clocks change at different times; the one that fits is named as an example
_ZONES = [f"Europe/{city}" for city in ("Berlin", "London", "Athens")]
_ZONES += [f"America/{city}" for city in ("New_York", "Chicago", "Denver", "Los_Angeles", "Santiago")]
_ZONES += ["Australia/Sydney", "Pacific/Auckland", "Asia/Jerusalem"]

Remedy = tuple[str, Int64s]  # what gaps are and how to avoid them, and the gaps that are left


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The gaps among the first rows of a stash."""

    times: Int64s
    first: Int64s  # the first row of each entity
    rows: Int64s  # the first row after each gap
    step: Frequency
    clock: Clock
    name: str  # of the time column

    def left_with(self, step: Frequency, times: Int64s | None = None) -> Int64s:
        """The gaps with another step, or with other times."""
        return gaps_at(self.times if times is None else times, self.first[1:] - 1, step)

    def longest(self, gaps: Int64s) -> int:
        """The rows of the longest run between gaps."""
        return int(np.diff(np.sort(np.append(self.first, gaps)), append=len(self.times)).max())


def remedy_of(stash: Stash, runs: Runs, needed: int) -> str:
    """What most gaps are, and what leaves a half of them at most and runs as long as needed; empty if not known."""
    if stash.time is None or runs.frequency is None:
        return ""
    times, offsets = stash.time.numpy()[:_MOST_ROWS], stash.offsets.numpy()
    first = np.unique(offsets[offsets < len(times)])
    rows = np.setdiff1d(runs.first[runs.first < len(times)], first)
    gaps = _Gaps(times, first, rows, runs.frequency, stash.clock, str(stash.time_name))
    for text, left in chain(_weekends(gaps), _changes_of_the_clock(gaps), _jitter(gaps)) if len(rows) else ():
        if 2 * len(left) <= len(rows) and gaps.longest(left) >= needed:
            return text
    return ""


def _weekends(gaps: _Gaps) -> Iterator[Remedy]:
    ignored, empty = "take gaps='ignore', windows of consecutive rows", "which has empty slots there."
    if gaps.step.kind == "business days" and 10 * len(gaps.rows) <= len(gaps.times):  # holidays are few
        yield f"If the gaps are holidays, {ignored}, or gaps='mask', {empty}", gaps.rows[:0]
    elif gaps.clock.unit is not None and gaps.step.least_ticks == gaps.clock.day:
        left = gaps.left_with(frequency("1bd", gaps.clock, None))
        yield "Most gaps are weekends: give frequency='1bd'.", left
        if 2 * len(left) <= len(gaps.rows):
            masked = f"or frequency='1bd' with gaps='mask', {empty}"
            yield f"Most gaps are weekends. '1bd' leaves others, such as holidays: {ignored}, {masked}", left[:0]


def _changes_of_the_clock(gaps: _Gaps) -> Iterator[Remedy]:
    """Local midnights as UTC, of which some are an hour nearer; and local hours, of which one is skipped a year."""
    clock, step, hour = gaps.clock, gaps.step, gaps.clock.day // 24
    before, after = gaps.times[gaps.rows - 1], gaps.times[gaps.rows]
    may_be = step.kind == "ticks" and hour and clock.unit is not None and clock.zone in UTC_NAMES
    if not may_be or 2 * np.count_nonzero(np.abs(after - before - step.count) == hour) < len(after):
        return
    zones = [Clock(clock.unit, zone) for zone in _ZONES]
    with suppress(DataError):  # of years that no zone knows, or on a machine without zones
        if step.count % clock.day == 0:
            zones.sort(key=lambda zoned: int(wall_clock(before[:1], zoned)[0]) % clock.day != 0)  # midnights first
            yield from chain.from_iterable(_midnights(gaps, zoned, before, after) for zoned in zones)
        elif clock.zone is None:
            yield from chain.from_iterable(_local_hours(gaps, zoned, before, after) for zoned in zones)


def _midnights(gaps: _Gaps, zoned: Clock, before: Int64s, after: Int64s) -> Iterator[Remedy]:
    step = frequency(f"{gaps.step.count // zoned.day}d", zoned, None)
    if 2 * np.count_nonzero(step.follows(before, after)) < len(after):
        return
    utc = ".dt.replace_time_zone('UTC')" if gaps.clock.zone is None else ""
    yield _zone(gaps, f"{utc}.dt.convert_time_zone({zoned.zone!r})"), gaps.left_with(step)


def _local_hours(gaps: _Gaps, zoned: Clock, before: Int64s, after: Int64s) -> Iterator[Remedy]:
    apart = ~gaps.step.follows(from_wall_clock(before, zoned)[0], from_wall_clock(after, zoned)[0])
    if 2 * np.count_nonzero(apart) > len(after):
        return
    times = from_wall_clock(gaps.times, zoned)[0]
    if (wall_clock(times, zoned) == gaps.times).all():  # the zone skips none of them
        yield (
            _zone(gaps, f".dt.replace_time_zone({zoned.zone!r}, ambiguous='earliest')"),
            gaps.left_with(gaps.step, times),
        )
    text = f"The gaps are hours that the clock skips, as in {zoned.zone}: gaps='mask' has an empty slot there."
    yield text, gaps.rows[apart]


def _zone(gaps: _Gaps, conversion: str) -> str:
    return (
        "The gaps are changes of the clock: give the times their zone, such as "
        f"frame.with_columns(pl.col({gaps.name!r}){conversion}), with polars."
    )


def _jitter(gaps: _Gaps) -> Iterator[Remedy]:
    """Steps that vary around their median."""
    counted = count_steps(gaps.times, gaps.first[1:] - 1, max(1, len(gaps.times) // _SAMPLE))
    steps, counts = (np.array(values, np.int64) for values in zip(*sorted(counted.items())))
    median = _quantile(steps, counts, 0.5)
    order = np.argsort(np.abs(steps - median))
    apart = np.abs(steps - median)[order]
    # the rarest steps may be gaps, and a few others are no jitter
    spreads = [_quantile(apart, counts[order], share) for share in (1.0, 0.999, 0.99, 0.9)]
    spread = next((ticks for ticks in spreads if 2 * ticks <= median), 0)
    if not spread or not spreads[-1]:
        return
    rounded = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
    tolerance = next(ticks for ticks in rounded if ticks >= spread)
    tolerance = tolerance if 2 * tolerance <= median else spread
    step, allowed = written(median, gaps.clock), written(tolerance, gaps.clock)
    text = f"Steps vary around {step}: give frequency={step!r}, tolerance={allowed!r}."
    yield text, gaps.left_with(frequency(step, gaps.clock, allowed))


def _quantile(values: Int64s, counts: Int64s, share: float) -> int:
    return int(values[np.searchsorted(np.cumsum(counts), share * counts.sum())])
