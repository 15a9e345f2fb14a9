"""Times as int64 ticks: units, zones and text. Numpy only."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, SupportsIndex, cast
from zoneinfo import ZoneInfo

import numpy as np

from tensorstash.common.checks import is_integer, shown
from tensorstash.errors import DataError

if TYPE_CHECKING:
    from tensorstash.common.dtypes import Int64s  # not at run time: it imports torch

NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_890  # days since 1970 of the years 1 to 9999, the range of Python's datetime
_DAYS = 4096  # zones are looked up for blocks of this many days, so that nearby times share the cached result
_EPOCH = 10**18 // 4, 2**62  # nanoseconds since 1970 of times around 1978 to 2116: of other units they are far away
UTC_NAMES = {None, "UTC", "Etc/UTC", "GMT", "Z", "+00:00"}
_FRACTION = re.compile(r"(:\d\d)[.,](\d{1,9})\d*")
# the ISO 8601 texts that every supported Python parses, without a fraction of a second
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:\d\d(:\d\d)?)?(Z|[+-]\d\d:\d\d(:\d\d)?)?)?")
_ONE_DIGIT = re.compile(r"(?<=-)\d(?=-|$|[T ])")  # a month or day of one digit


def zone_of(name: str | None) -> tzinfo:
    """A zone of the IANA database, or one that Arrow writes as an offset from UTC, such as "+05:30".

    Raises `DataError` for a zone that this machine does not know.
    """
    if name in UTC_NAMES or not name:
        return timezone.utc
    try:
        if re.fullmatch(r"[+-]\d\d:?\d\d", name):
            return datetime.strptime(name, "%z").tzinfo or timezone.utc
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise DataError(
            f"A time zone is one of the IANA database, or an offset from UTC such as '+05:30'; {name!r} is neither, "
            "or this machine has no such zone. Install tzdata, or convert the times to UTC before loading."
        ) from None


@dataclass(frozen=True, slots=True)
class Clock:
    """How the int64 times of a stash are read."""

    unit: str | None  # "s", "ms", "us", "ns", "d"; None for plain integers
    zone: str | None
    hint: str = field(default="", compare=False)  # what plain integers seem to mean, for errors

    @property
    def day(self) -> int:
        """Ticks in 24 hours."""
        return NANOSECONDS["d"] // NANOSECONDS[self.unit or "d"]

    def format(self, ticks: int) -> str:
        """A time as text, in the zone."""
        if self.unit is None:
            return str(ticks)
        per_second = self.day // 86_400
        if self.unit == "d" or not _FIRST_DAY < ticks // self.day < _LAST_DAY:
            moment = np.array(ticks).astype(f"datetime64[{'D' if self.unit == 'd' else self.unit}]")
            return str(moment).replace("T", " ")  # a datetime has only the years 1 to 9999
        when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=ticks // per_second)
        with suppress(DataError):  # a file may come from a machine that knows more zones: then the text is in UTC
            when = when.astimezone(zone_of(self.zone)) if self.zone else when.replace(tzinfo=None)
        text, fraction = when.isoformat(" "), f"{ticks % per_second:0{len(str(per_second)) - 1}d}".rstrip("0")
        return f"{text[:19]}.{fraction}{text[19:]}" if fraction else text

    def parse(self, moment: SupportsIndex | str | date | np.datetime64, what: str = "A cut") -> int:
        """The first tick at or after a time; integers are ticks.

        Text without an offset from UTC, and a date, are read in the clock's zone; midnight is the beginning of its day.
        Raises `ValueError` for a time with a zone where the clock has none and the other way round, for one that the
        clock of the zone shows twice or never, and for one that does not fit into 64 bits.
        """
        tick = self._tick(moment, what)
        if not -(1 << 63) <= tick < 1 << 63:
            kind = "integers" if self.unit is None else f"times in {self.unit!r}"
            raise ValueError(f"{what} must fit into 64 bits, as the {kind} of the stash do; got {shown(moment)}.")
        return tick

    def _tick(self, moment: SupportsIndex | str | date | np.datetime64, what: str) -> int:
        if self.unit is None:
            if not is_integer(moment):
                raise ValueError(f"{what} is an integer, as the times are; got {shown(moment)}.{self.hint}")
            return operator.index(cast("SupportsIndex", moment))
        text = moment.isoformat() if isinstance(moment, date) else str(moment)
        text = _ONE_DIGIT.sub(r"0\g<0>", text[:10]) + text[10:]
        # datetime has no nanoseconds
        text, fraction = _FRACTION.sub(r"\1", text), _FRACTION.search(text)
        try:
            if not _MOMENT.fullmatch(text):
                raise ValueError(text)
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise ValueError(f"{what} is written as '2013-10-01' or '2013-10-01 06:00'; got {shown(moment)}.") from None
        if when.tzinfo is None:
            self._check_naive(moment, what)
            when = when.replace(tzinfo=zone_of(self.zone))
            _check_unique(when, str(self.zone), what)
        elif self.zone is None:
            raise ValueError(
                f"{what} must have no zone, as the times of the stash have none; got {shown(moment)}. Write it as the "
                "time column does, or load times with a zone."
            )
        seconds = (when - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
        nanoseconds = seconds * 10**9 + (int(fraction[2].ljust(9, "0")) if fraction else 0)
        return -(-nanoseconds // NANOSECONDS[self.unit])

    def _check_naive(self, moment: object, what: str) -> None:
        """Refuse a moment without a zone that times with a zone cannot be compared with; text and dates can."""
        is_day = isinstance(moment, np.datetime64) and np.datetime_data(moment.dtype)[0] == "D"
        if self.zone is not None and not is_day and isinstance(moment, (datetime, np.datetime64)):
            raise ValueError(
                f"{what} must have a zone, as the times of the stash have {self.zone}; got {shown(moment)}. Give it "
                f"one, or write text, which is read in {self.zone}."
            )


def epoch_hint(name: str, low: int | None, high: int | None) -> str:
    """What to do with integer times of a column that read as times since 1970, as a sentence after another one."""
    if low is None or high is None:
        return ""
    for unit in ("s", "ms", "us", "ns"):
        if _EPOCH[0] <= low * NANOSECONDS[unit] <= high * NANOSECONDS[unit] <= _EPOCH[1]:
            load = f"frame.with_columns(pl.from_epoch({name!r}, {unit!r}))"
            return f" {low} reads as {unit} since 1970: load {load}, with polars."
    return ""


def _check_unique(when: datetime, zone: str, what: str) -> None:
    """Raise `ValueError` if a change of the clock skips or repeats a local time that is not midnight."""
    first, second = (when.replace(fold=fold).utcoffset() for fold in (0, 1))
    if first == second or first is None or second is None or not any(when.timetuple()[3:6]):
        return
    text = f"{when:%Y-%m-%d %H:%M}"
    offsets = [f"{when.replace(fold=fold):%z}" for fold in (0, 1)]
    happens = "comes twice" if first > second else "does not exist"
    raise ValueError(
        f"{what} must be one moment; {text} {happens} in {zone}, where the clock changes. Write its offset from UTC, "
        f"such as '{text}{offsets[0][:3]}:{offsets[0][3:5]}' or '{text}{offsets[1][:3]}:{offsets[1][3:5]}'."
    )


def wall_clock(ticks: Int64s, clock: Clock) -> Int64s:
    """Ticks of the wall clock in the zone, both `(n,)`."""
    if clock.zone in UTC_NAMES or not len(ticks):
        return ticks
    earliest, latest = int(ticks.min()), int(ticks.max())
    first, last = earliest // clock.day, latest // clock.day
    fits = max(-earliest, latest) < (1 << 63) - clock.day  # local times must fit into 64 bits too
    if not fits or not _FIRST_DAY < first <= last < _LAST_DAY:
        known = "from 1677-09-23 to 2262-04-10 in 'ns'" if clock.unit == "ns" else "for the years 1 to 9999"
        raise DataError(
            f"Calendar steps in a zone are known {known}; the times go from {clock.format(earliest)} to "
            f"{clock.format(latest)}. Give a frequency= in hours, or convert them to UTC."
        )
    first, last = max(first - first % _DAYS, _FIRST_DAY + 1), min(last - last % _DAYS + _DAYS, _LAST_DAY - 1)
    starts, offsets = _transitions(str(clock.zone), first, last)
    per_second = clock.day // 86_400
    return ticks + offsets[np.searchsorted(starts, ticks // per_second, "right") - 1] * per_second


def from_wall_clock(local: Int64s, clock: Clock) -> tuple[Int64s, Int64s]:
    """Ticks in UTC from ticks of the wall clock, both `(n,)`: the earliest and the latest possible.

    They differ where a change of the clock skips the time, which is then read by the offset after and before the
    change. A time that the clock shows twice is the first of the two.
    """
    near = 2 * local - wall_clock(local, clock)
    guess = local - (wall_clock(near, clock) - near)
    corrected = guess - (wall_clock(guess, clock) - local)
    return np.minimum(guess, corrected), np.maximum(guess, corrected)


@lru_cache(maxsize=64)
def _transitions(zone: str, first_day: int, last_day: int) -> tuple[Int64s, Int64s]:
    """The seconds from which each offset from UTC holds, and these offsets, between two days."""
    info = zone_of(zone)

    def offset(second: int) -> int:
        moment = datetime.fromtimestamp(second, timezone.utc).astimezone(info)
        return int((moment.utcoffset() or timedelta(0)).total_seconds())

    starts, offsets = [first_day * 86_400], [offset(first_day * 86_400)]
    for day in range(first_day + 1, last_day + 2):
        seconds = range((day - 1) * 86_400, day * 86_400)
        if offset(seconds.stop) != offsets[-1]:
            same = bisect_left(seconds, True, key=lambda second: offset(second) != offsets[-1])
            starts.append(seconds.start + same)
            offsets.append(offset(starts[-1]))
    return np.array(starts, np.int64), np.array(offsets, np.int64)
