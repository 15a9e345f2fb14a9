"""Frequencies: steps of fixed ticks, calendar days, months or business days. Numpy only."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.aliases import meant_by
from tensorstash.common.checks import is_integer, shown
from tensorstash.common.clock import NANOSECONDS, UTC_NAMES, Clock, from_wall_clock, wall_clock

if TYPE_CHECKING:
    from tensorstash.common.dtypes import Bools, Int8s, Int64s  # not at run time: it imports torch

Duration = int | str | timedelta
_CALENDAR_UNITS = {
    "mo": ("months", 1),
    "q": ("months", 3),
    "y": ("months", 12),
    "bd": ("business days", 1),
    "d": ("days", 1),
    "w": ("days", 7),
}
_LENGTHS = (("1mo", 28, 31), ("2mo", 59, 62), ("1q", 89, 92), ("4mo", 120, 123), ("6mo", 181, 184), ("1y", 365, 366))
_CALENDAR = re.compile(r"([1-9]\d*)(mo|q|y|bd|d|w)")
_ZERO = re.compile(r"-?(0+[a-z]+)+")
_PART = re.compile(r"(\d+)(ns|us|ms|mo|bd|s|m|h|d|w|q|y|i)")


@dataclass(frozen=True, slots=True)
class Frequency:
    """One step of time: fixed ticks, or calendar days, months or business days in the zone of the clock."""

    text: str
    kind: str  # "ticks", "days", "months", "business days"
    count: int
    tolerance: int
    clock: Clock

    @property
    def least_ticks(self) -> int:
        """A lower bound of its length, without changes of the clock."""
        day = self.clock.day
        return self.count * {"ticks": 1, "days": day, "months": 28 * day, "business days": day}[self.kind]

    @property
    def most_ticks(self) -> int:
        """An upper bound of its length, whatever months and weekends it spans."""
        day = self.clock.day
        return self.count * {"ticks": 1, "days": day, "months": 31 * day, "business days": 2 * day}[self.kind]

    def follows(self, before: Int64s, after: Int64s, steps: Int64s | int = 1) -> Bools:
        """Whether each `after` is `steps` steps later than `before`, all `(n,)`.

        Calendar steps may also match backwards: a month before the last day of March is the last day of February, but
        a month after that is not the last day of March.
        """
        if self.kind == "ticks":
            steps = self.count * steps
            return after - before == steps if not self.tolerance else np.abs(after - before - steps) <= self.tolerance
        matches = self._reaches(before, after, steps)
        rest = np.flatnonzero(~matches)
        matches[rest] = self._reaches(after[rest], before[rest], -np.broadcast_to(steps, matches.shape)[rest])
        if self.kind == "business days":
            for times in (before, after):
                matches &= np.is_busday(_days(wall_clock(times, self.clock), self.clock.day))
        return matches

    def _reaches(self, times: Int64s, targets: Int64s, steps: Int64s | int) -> Bools:
        earliest, latest = from_wall_clock(self._later(times, steps), self.clock)
        return np.minimum(np.abs(targets - earliest), np.abs(targets - latest)) <= self.tolerance

    def steps(self, before: Int64s, after: Int64s) -> Int64s:
        """How many steps lie between each pair of times, both `(n,)`; 0 where it is not a whole number."""
        steps = np.maximum(self.passed(before, after), 1)
        return np.where(self.follows(before, after, steps), steps, 0)

    def passed(self, before: Int64s, after: Int64s) -> Int64s:
        """How many steps lie between each pair of times, both `(n,)`, or one more or less if they are not whole."""
        local_before, local_after, day = wall_clock(before, self.clock), wall_clock(after, self.clock), self.clock.day
        if self.kind == "months":
            passed = (
                _days(local_after, day).astype("datetime64[M]") - _days(local_before, day).astype("datetime64[M]")
            ).astype(np.int64)
        elif self.kind == "business days":
            passed = np.busday_count(_days(local_before, day), _days(local_after, day))
        else:
            ticks = local_after - local_before if self.kind == "days" else after - before
            unit = self.count * (day if self.kind == "days" else 1)
            return (ticks + unit // 2) // unit
        return passed // self.count

    def advance(self, times: Int64s, steps: Int64s, days: Int8s | int = 0) -> Int64s:
        """The times that many steps later, or earlier if negative, as in polars' `offset_by`; both `(n,)`.

        `days` are those of the month that times had before a shorter month cut them, as `month_days` of a stash gives
        them: steps of months from the last day of a month keep them.
        """
        if self.kind == "ticks":
            return times + self.count * steps
        # the clock may show the local time twice, or skip it: then the offset from UTC remains
        offsets, later = wall_clock(times, self.clock) - times, self._later(times, steps, days)
        (earliest, latest), same = from_wall_clock(later, self.clock), later - offsets
        moved = np.where(wall_clock(earliest, self.clock) - earliest == offsets, earliest, latest)
        return np.where(wall_clock(same, self.clock) == later, same, moved)

    def advance_one(self, time: int, steps: int, day: int = 0) -> int | None:
        """`advance` for one time; `None` if the result does not fit into 64 bits, where `advance` would wrap."""
        if not steps:
            return time
        if abs(steps) * self.most_ticks >= 1 << 63 or not -1 << 63 <= time + steps * self.least_ticks < 1 << 63:
            return None
        moved = int(self.advance(np.array([time]), np.array([steps]), day)[0])
        return moved if (moved > time) == (steps > 0) else None

    def _later(self, times: Int64s, steps: Int64s | int, days: Int8s | int = 0) -> Int64s:
        """The local times that many calendar steps later."""
        count, day = self.count * steps, self.clock.day
        local = wall_clock(times, self.clock)
        if self.kind == "days":
            return local + count * day
        if self.kind == "months":
            month: NDArray[np.datetime64] = _days(local, day).astype("datetime64[M]")
            before, is_last = day_of_month(times, self.clock)
            kept = np.where(is_last, np.maximum(before, days), before)
            last = _first_day(month + count + 1) - 1  # the last day of the later month, which may be shorter
            return np.minimum(_first_day(month + count) + kept - 1, last) * day + local % day
        working = np.busday_offset(_days(local, day), count, roll="backward")
        return working.astype(np.int64) * day + local % day


def frequency(text: Duration, clock: Clock, tolerance: Duration | None, what: str = "frequency") -> Frequency:
    """A frequency from polars' duration language ("15m", "1h30m", "1d", "1mo", "1bd"), or an integer for integer times.

    A `timedelta` is read as polars reads it: one of a whole day is a calendar day.
    https://docs.pola.rs/api/python/stable/reference/expressions/api/polars.Expr.dt.offset_by.html
    """
    text = as_text(text)
    allowed = 0 if tolerance is None else _ticks(tolerance, clock, "tolerance")
    if allowed < 0:
        raise ValueError(f"tolerance must be >= 0, got {tolerance!r}.")
    calendar = _CALENDAR.fullmatch(str(text)) if clock.unit is not None else None
    if calendar is not None:
        kind, length = _CALENDAR_UNITS[calendar[2]]
        if kind != "days" or clock.zone not in UTC_NAMES:  # in UTC all days have 24 hours
            return Frequency(str(text), kind, int(calendar[1]) * length, allowed, clock)
    ticks = _ticks(text, clock, what)
    if ticks < 1:
        raise ValueError(f"{what} must be longer than zero, got {text!r}.")
    return Frequency(str(text), "ticks", ticks, allowed, clock)


def is_zero(length: object) -> bool:
    """Whether a text is a duration of nothing, such as "0d" or "-0d"."""
    return isinstance(length, str) and _ZERO.fullmatch(length) is not None


def duration(length: timedelta | str, what: str) -> timedelta:
    """A fixed duration of at least 0, as polars writes it; `what` is the argument that it was given for."""
    try:
        return timedelta(microseconds=_ticks(length, Clock("us", None), what))
    except OverflowError:
        raise ValueError(f"{what} must be at most {timedelta.max.days} days, got {length!r}.") from None


def inferred(step: int, clock: Clock, tolerance: Duration | None) -> list[Frequency]:
    """The frequencies that a most common step may stand for, the likeliest first: months and days vary in length."""
    fixed = [frequency(written(step, clock), clock, tolerance)]
    if clock.unit is None:
        return fixed
    days = round(step / clock.day)
    if not days or abs(step - days * clock.day) > clock.day // 24:
        return fixed
    for text, shortest, longest in _LENGTHS:
        if shortest <= days <= longest:
            return [frequency(text, clock, tolerance), *fixed]
    return [frequency(f"{days}d", clock, tolerance), *fixed] if clock.zone not in UTC_NAMES else fixed


def day_of_month(times: Int64s, clock: Clock) -> tuple[Int64s, Bools]:
    """The day of the month of each time in the zone of the clock, from 1 on, and whether it is the last; all `(n,)`."""
    days = wall_clock(times, clock) // clock.day
    month: NDArray[np.datetime64] = days.astype("datetime64[D]").astype("datetime64[M]")
    return days - _first_day(month) + 1, days == _first_day(month + 1) - 1


def written(step: int, clock: Clock) -> int | str:
    """A step as users write it: an integer for integer times, else text such as "1h30m" or "3d"."""
    if clock.unit is None:
        return step
    rest, text, day = step * NANOSECONDS[clock.unit], "", NANOSECONDS["d"]
    units = ("d", "h", "m", "s", "ms", "us", "ns")
    for unit in units[1:] if day < rest < 2 * day else units:
        count, rest = divmod(rest, NANOSECONDS[unit])
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def as_text(length: Duration) -> int | str:
    """A `timedelta`, as polars writes it; one of pandas has nanoseconds."""
    if not isinstance(length, timedelta):
        return length
    microseconds = (length.days * 86_400 + length.seconds) * 10**6 + length.microseconds
    return written(microseconds * 1000 + getattr(length, "nanoseconds", 0), Clock("ns", None))


def _ticks(length: Duration, clock: Clock, what: str) -> int:
    text = as_text(length)
    if clock.unit is None:
        number = int(text[:-1]) if isinstance(text, str) and re.fullmatch(r"\d+i", text) else text
        if is_integer(number):
            return operator.index(cast("SupportsIndex", number))
        raise ValueError(f"{what} of integer times must be an integer, got {text!r}.{clock.hint}")
    parts = _PART.findall(text) if isinstance(text, str) else []
    if not parts or "".join(map("".join, parts)) != text or any(unit not in NANOSECONDS for _, unit in parts):
        is_step = what in ("frequency", "step", "gap", "every")
        calendar = ", or alone '1mo', '1q', '1y', '1bd'" if is_step else ""
        meant = meant_by(length)
        is_possible = meant and (is_step or all(unit in NANOSECONDS for _, unit in _PART.findall(meant)))
        own = " Or give a list of all times that exist." if what == "frequency" else ""
        remedy = f" Write {meant!r}." if is_possible else own
        raise ValueError(
            f"{what} must be a duration as polars writes it, such as '15m', '1h', '1d'{calendar}, got {shown(text)}."
            f"{remedy}"
        )
    ticks, rest = divmod(sum(int(count) * NANOSECONDS[unit] for count, unit in parts), NANOSECONDS[clock.unit])
    if rest:
        raise ValueError(f"{what} must be a multiple of the time column's unit, {clock.unit!r}, got {text!r}.")
    return ticks


def _days(ticks: Int64s, day: int) -> NDArray[np.datetime64]:
    return (ticks // day).astype("datetime64[D]")


def _first_day(months: NDArray[np.datetime64]) -> Int64s:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
