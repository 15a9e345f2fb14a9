"""Times as int64 ticks: units, zones, text, and what one step of a frequency is. Numpy only."""

import operator
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import SupportsIndex
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from tensorstash.arrays import Bools, Int64s
from tensorstash.errors import DataError

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}
_MONTHS = {"mo": 1, "q": 3, "y": 12}
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_890  # of the years that Python's datetime knows, since 1970
_DAYS = 4096  # times are looked up in so many together, so that what is known of a zone serves the next ones too
_UTC = {None, "UTC", "Etc/UTC", "GMT", "Z", "+00:00"}
_FRACTION = re.compile(r"(:\d\d)[.,](\d{1,9})\d*")
_PART = re.compile(r"(\d+)(ns|us|ms|mo|bd|s|m|h|d|w|q|y|i)")


def _zone(name: str) -> tzinfo:
    """A zone of the database, or one that Arrow writes as its distance from UTC, such as "+05:30"."""
    if re.fullmatch(r"[+-]\d\d:\d\d", name):
        return datetime.strptime(name, "%z").tzinfo or timezone.utc
    return ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class Clock:
    """How the int64 times of a stash are read."""

    unit: str | None  # "s", "ms", "us", "ns", "d"; None for plain integers
    zone: str | None

    @property
    def day(self) -> int:
        """Ticks in 24 hours."""
        return _NANOSECONDS["d"] // _NANOSECONDS[self.unit or "d"]

    def format(self, ticks: int) -> str:
        """A time as text, in the zone."""
        if self.unit is None:
            return str(ticks)
        per_second = self.day // 86_400
        if self.unit == "d" or not _FIRST_DAY < ticks // self.day < _LAST_DAY:
            moment = np.array(ticks).astype(f"datetime64[{'D' if self.unit == 'd' else self.unit}]")
            return str(moment).replace("T", " ")  # it may be beyond the years that a datetime can hold
        when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=ticks // per_second)
        local = when.astimezone(_zone(self.zone)) if self.zone else when.replace(tzinfo=None)
        text, fraction = local.isoformat(" "), f"{ticks % per_second:0{len(str(per_second)) - 1}d}".rstrip("0")
        return f"{text[:19]}.{fraction}{text[19:]}" if fraction else text

    def parse(self, moment: SupportsIndex | str | date | np.datetime64) -> int:
        """The first tick from a time on; what has no zone is read in the clock's, integers are taken as they are."""
        if self.unit is None:
            if not isinstance(moment, SupportsIndex):
                raise ValueError(f"A cut is an integer, as the times are; got {moment!r}.")
            return operator.index(moment)
        text = moment.isoformat() if isinstance(moment, date) else str(moment)
        # datetime knows no nanoseconds
        text, fraction = _FRACTION.sub(r"\1", text), _FRACTION.search(text)
        try:
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError as error:
            raise ValueError(f"A cut is written as '2013-10-01' or '2013-10-01 06:00'; got {moment!r}.") from error
        if when.tzinfo is None:
            when = when.replace(tzinfo=_zone(self.zone) if self.zone else timezone.utc)
        seconds = (when - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
        nanoseconds = seconds * 10**9 + (int(fraction[2].ljust(9, "0")) if fraction else 0)
        return -(-nanoseconds // _NANOSECONDS[self.unit])


@dataclass(frozen=True, slots=True)
class Frequency:
    """One step of time: fixed ticks, or calendar days, months or business days in the zone of the clock."""

    text: str
    kind: str  # "ticks", "days", "months", "business days"
    count: int
    tolerance: int
    clock: Clock

    def follows(self, before: Int64s, after: Int64s, steps: Int64s | int = 1) -> Bools:
        """Whether each time is so many steps after the one before it, all `(n,)`."""
        count, day = self.count * steps, self.clock.day
        if self.kind == "ticks":
            return np.abs(after - before - count) <= self.tolerance
        one, two = wall_clock(before, self.clock), wall_clock(after, self.clock)
        if self.kind == "days":
            return np.abs(two - one - count * day) <= self.tolerance
        if self.kind == "months":
            return self._months_follow(one, two, count)
        from_day, to_day = _days(one, day), _days(two, day)
        target = np.busday_offset(from_day, count, roll="backward").astype(np.int64) * day + one % day
        working = np.is_busday(from_day) & np.is_busday(to_day)
        return working & (np.abs(two - target) <= self.tolerance)

    def _months_follow(self, one: Int64s, two: Int64s, months: Int64s | int) -> Bools:
        """The same day so many months on, or the last day of the month where one of the two months is too short."""
        day = self.clock.day
        month = _days(one, day).astype("datetime64[M]")
        month_day = one // day - _first_day(month)
        last_of_source = _first_day(month + 1) - _first_day(month) - 1
        earliest, last_of_target = _later_month(month, month_day, months)
        latest = np.where(month_day == last_of_source, last_of_target, earliest)
        low, high = earliest * day + one % day - self.tolerance, latest * day + one % day + self.tolerance
        same_hour = np.abs((two - one + day // 2) % day - day // 2) <= self.tolerance
        return (low <= two) & (two <= high) & same_hour

    def steps(self, before: Int64s, after: Int64s) -> Int64s:
        """How many steps each time is after the one before it, both `(n,)`; 0 where it is no whole number of them."""
        one, two, day = wall_clock(before, self.clock), wall_clock(after, self.clock), self.clock.day
        if self.kind == "months":
            passed = (_days(two, day).astype("datetime64[M]") - _days(one, day).astype("datetime64[M]")).astype(
                np.int64
            )
        elif self.kind == "business days":
            passed = np.busday_count(_days(one, day), _days(two, day))
        else:
            ticks = two - one if self.kind == "days" else after - before
            unit = self.count * (day if self.kind == "days" else 1)
            passed = (ticks + unit // 2) // unit * self.count
        steps = np.maximum(passed // self.count, 1)
        return np.where(self.follows(before, after, steps), steps, 0)

    def advance(self, times: Int64s, steps: Int64s) -> Int64s:
        """The times so many steps later, as polars' `offset_by` has them; both `(n,)`."""
        count, day = self.count * steps, self.clock.day
        if self.kind == "ticks":
            return times + count
        local = wall_clock(times, self.clock)
        if self.kind == "days":
            later = local + count * day
        elif self.kind == "months":
            month = _days(local, day).astype("datetime64[M]")
            later = _later_month(month, local // day - _first_day(month), count)[0] * day + local % day
        else:
            working = np.busday_offset(_days(local, day), count, roll="backward")
            later = working.astype(np.int64) * day + local % day
        return _from_local(later, self.clock)


def frequency(text: int | str, clock: Clock, tolerance: int | str | None) -> Frequency:
    """A frequency from polars' duration language ("15m", "1h30m", "1d", "1mo", "1bd"), or an integer for integer times.

    https://docs.pola.rs/api/python/stable/reference/expressions/api/polars.Expr.dt.offset_by.html
    """
    allowed = 0 if tolerance is None else _ticks(tolerance, clock, "tolerance")
    if allowed < 0:
        raise ValueError(f"tolerance= is at least 0; got {tolerance!r}.")
    parts = _PART.findall(text) if isinstance(text, str) else []
    if isinstance(text, str) and len(parts) == 1 and clock.unit is not None and int(parts[0][0]) > 0:
        count, unit = int(parts[0][0]), parts[0][1]
        whole = f"{count}{unit}" == text
        if whole and unit in _MONTHS:
            return Frequency(text, "months", count * _MONTHS[unit], allowed, clock)
        if whole and unit == "bd":
            return Frequency(text, "business days", count, allowed, clock)
        if whole and unit in ("d", "w") and clock.zone not in _UTC:
            return Frequency(text, "days", count * (7 if unit == "w" else 1), allowed, clock)
    ticks = _ticks(text, clock, "frequency")
    if ticks < 1:
        raise ValueError(f"frequency= is longer than nothing; got {text!r}.")
    return Frequency(str(text), "ticks", ticks, allowed, clock)


def duration(text: str, what: str) -> timedelta:
    """A fixed duration as polars writes it; `what` is the argument that it was given for."""
    return timedelta(microseconds=_ticks(text, Clock("us", None), what))


def inferred(step: int, clock: Clock, tolerance: int | str | None) -> list[Frequency]:
    """What the most common step of a source may mean, the likeliest first: months vary in length, and so do days."""
    found = [frequency(_text_of(step, clock), clock, tolerance)]
    if clock.unit is None:
        return found
    days = round(step / clock.day)
    if not days or abs(step - days * clock.day) > clock.day // 24:
        return found
    for lengths, text in (((28, 31), "1mo"), ((90, 92), "1q"), ((365, 366), "1y")):
        if lengths[0] <= days <= lengths[1]:
            return [frequency(text, clock, tolerance), *found]
    return [frequency(f"{days}d", clock, tolerance), *found] if clock.zone not in _UTC else found


def describe_step(step: int, clock: Clock) -> str:
    """A step as a person would say it: "3d", "1h30m", "1200"."""
    return str(_text_of(step, clock))


def _text_of(step: int, clock: Clock) -> int | str:
    if clock.unit is None:
        return step
    rest, text = step * _NANOSECONDS[clock.unit], ""
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _NANOSECONDS[unit])
        if count and (unit != "d" or not rest or count > 1):
            text += f"{count}{unit}"
        elif count:
            rest += count * _NANOSECONDS[unit]
    return text or "0s"


def _ticks(text: int | str, clock: Clock, what: str) -> int:
    """A fixed duration in ticks of the clock."""
    if clock.unit is None:
        number = int(text[:-1]) if isinstance(text, str) and re.fullmatch(r"\d+i", text) else text
        if isinstance(number, int):
            return number
        raise ValueError(f"{what}= of integer times is an integer; got {text!r}.")
    parts = _PART.findall(text) if isinstance(text, str) else []
    if not parts or "".join(map("".join, parts)) != text or any(unit not in _NANOSECONDS for _, unit in parts):
        calendar = ", or alone '1mo', '1q', '1y', '1bd'" if what == "frequency" else ""
        raise ValueError(
            f"{what}= is a duration as polars writes it, such as '15m', '1h', '1d'{calendar}; got {text!r}."
        )
    ticks, rest = divmod(sum(int(count) * _NANOSECONDS[unit] for count, unit in parts), _NANOSECONDS[clock.unit])
    if rest:
        raise ValueError(f"{what}= is a multiple of the time column's unit, {clock.unit!r}; got {text!r}.")
    return ticks


def _days(ticks: Int64s, day: int) -> NDArray[np.datetime64]:
    return (ticks // day).astype("datetime64[D]")


def _first_day(months: NDArray[np.datetime64]) -> Int64s:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _later_month(month: NDArray[np.datetime64], month_day: Int64s, months: Int64s | int) -> tuple[Int64s, Int64s]:
    """Some months later: the day of the same number, or the last one of a shorter month, and that last day."""
    first, after = _first_day(month + months), _first_day(month + months + 1)
    return np.minimum(first + month_day, after - 1), after - 1


def wall_clock(ticks: Int64s, clock: Clock) -> Int64s:
    """Ticks of the wall clock in the zone, both `(n,)`."""
    if clock.zone in _UTC or not len(ticks):
        return ticks
    first, last = int(ticks.min()) // clock.day, int(ticks.max()) // clock.day
    if not _FIRST_DAY < first <= last < _LAST_DAY:
        raise DataError(
            "Calendar steps in a zone are known for the years 1 to 9999; the times go from "
            f"{clock.format(int(ticks.min()))} to {clock.format(int(ticks.max()))}. Give a frequency= in hours, or "
            "convert them to UTC."
        )
    first, last = max(first - first % _DAYS, _FIRST_DAY + 1), min(last - last % _DAYS + _DAYS, _LAST_DAY - 1)
    starts, offsets = _transitions(str(clock.zone), first, last)
    per_second = clock.day // 86_400
    return ticks + offsets[np.searchsorted(starts, ticks // per_second, "right") - 1] * per_second


def _from_local(local: Int64s, clock: Clock) -> Int64s:
    """Ticks in UTC from those of the wall clock; what it shows twice or never is taken by the offset before."""
    near = 2 * local - wall_clock(local, clock)
    return local - (wall_clock(near, clock) - near)


@lru_cache(maxsize=64)
def _transitions(zone: str, first_day: int, last_day: int) -> tuple[Int64s, Int64s]:
    """From which second on which offset from UTC holds, between two days."""
    info = _zone(zone)

    def offset(second: int) -> int:
        moment = datetime.fromtimestamp(second, timezone.utc).astimezone(info)
        return int((moment.utcoffset() or timedelta(0)).total_seconds())

    starts, offsets = [first_day * 86_400], [offset(first_day * 86_400)]
    for day in range(first_day + 1, last_day + 2):
        low, high = (day - 1) * 86_400, day * 86_400
        if offset(high) != offsets[-1]:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
            starts.append(high)
            offsets.append(offset(high))
    return np.array(starts, np.int64), np.array(offsets, np.int64)


def bisect_rows(times: Int64s, offsets: Int64s, moment: int) -> Int64s:
    """For each entity its first row at or after a time: `(entities,)`, all entities at once."""
    low, high = offsets[:-1].copy(), offsets[1:].copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        later = np.zeros(len(low), bool)
        later[open_] = times[middle[open_]] >= moment
        high = np.where(open_ & later, middle, high)
        low = np.where(open_ & ~later, middle + 1, low)
    return low
