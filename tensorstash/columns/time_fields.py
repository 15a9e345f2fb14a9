"""`ts.calendar`: fields of each row's time, such as the hour, as numbers, scaled, or as points on a circle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.arrays import numbers, of_numbers
from tensorstash.columns.expression import Compute
from tensorstash.columns.resolve import time_column
from tensorstash.columns.spec import ColumnSpec
from tensorstash.columns.types import value_type
from tensorstash.common.checks import flag
from tensorstash.common.clock import Clock, wall_clock
from tensorstash.common.dtypes import Int64s
from tensorstash.errors import SchemaError

_DAY = 86_400  # seconds
TIME = "time"  # the field that is the time itself


@dataclass(frozen=True, slots=True)
class _Cycle:
    """A field of time whose values repeat."""

    count: Callable[[Int64s, Int64s], Int64s]  # days since 1970 and seconds of the day, `(n,)` each -> values from 0
    length: int  # how many values there are
    first: int  # the number of the first value


def _since(days: Int64s, start: Literal["M", "Y"]) -> Int64s:
    """Days since the month or year began."""
    return days - days.astype("M8[D]").astype(f"M8[{start}]").astype("M8[D]").astype(np.int64)


def _month(days: Int64s) -> Int64s:
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64) % 12


_CYCLES = {
    "second": _Cycle(lambda _, seconds: seconds % 60, 60, 0),
    "minute": _Cycle(lambda _, seconds: seconds // 60 % 60, 60, 0),
    "hour": _Cycle(lambda _, seconds: seconds // 3600, 24, 0),
    "day": _Cycle(lambda days, _: _since(days, "M"), 31, 1),
    "dayofweek": _Cycle(lambda days, _: (days + 3) % 7, 7, 0),
    "dayofyear": _Cycle(lambda days, _: _since(days, "Y"), 366, 1),
    # a week belongs to the year of its Thursday
    "week": _Cycle(lambda days, _: _since(days - (days + 3) % 7 + 3, "Y") // 7, 53, 1),
    "month": _Cycle(lambda days, _: _month(days), 12, 1),
    "quarter": _Cycle(lambda days, _: _month(days) // 3, 4, 1),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A field of the time of each row, in one of its forms."""

    field: str
    form: str  # "number", "scaled", "sin" or "cos"

    def inputs(self, time: str | None) -> tuple[str, ...]:
        """The time column."""
        if time is None:
            raise ValueError("ts.calendar needs the time column, and time= is missing. Name the column: time=.")
        return (time,)

    def text(self, time: str | None) -> str:
        """The field as text, such as "hour of t"."""
        return f"{self.field} of {time}" if self.form == "number" else f"{self.form} of {self.field} of {time}"

    def key(self) -> str:
        """The field and the form."""
        return repr(self)

    def bind(self, fields: Sequence[pa.Field]) -> tuple[pa.DataType, Compute]:
        """The type of the values, and a function that computes them from times."""
        (field,) = fields
        if self.field == TIME:
            plain = value_type(field.type)
            arrow = pa.int64() if pa.types.is_integer(plain) else plain
            return arrow, lambda arrays, *_: arrays[0].cast(arrow)
        kind = time_column(pa.schema([field]), field.name, "it").kind
        if kind == "date" and self.field in ("second", "minute", "hour"):
            raise SchemaError(f"A date has no {self.field}; time={field.name!r} is {field.type}. Leave it out.")

        def compute(arrays: Sequence[pa.Array], *_: object) -> pa.Array:
            return of_numbers(time_field_values([(self.field, self.form)], *_ticks(arrays[0]))[:, 0])

        return pa.from_numpy_dtype(_values(_CYCLES[self.field], self.form).dtype), compute


def _values(cycle: _Cycle, form: str) -> NDArray[Any]:
    counts = np.arange(cycle.length)
    if form == "number":
        return (cycle.first + counts).astype(np.int16 if cycle.length > 127 else np.int8)
    if form == "scaled":
        return (counts / (cycle.length - 1) - 0.5).astype(np.float32)
    phase = 2 * np.pi * counts / cycle.length
    return (np.sin(phase) if form == "sin" else np.cos(phase)).astype(np.float32)


def calendar(*fields: str, cyclic: bool = False, scaled: bool = False) -> ColumnSpec:
    """Fields of the calendar as one column of a stash, computed from the time column, in its own zone.

    Args:
        *fields: some of `"second"` and `"minute"` (0 to 59), `"hour"` (0 to 23), `"day"` (of the month, 1 to 31),
            `"dayofweek"` (0 is Monday, 6 is Sunday), `"dayofyear"` (1 to 366), `"week"` (of ISO 8601, 1 to 53),
            `"month"` (1 to 12) and `"quarter"` (1 to 4), numbered as in pandas. Dates have no second, minute and hour.
            Or `"time"` alone, the time itself, of integer times too.
        cyclic: the sine and the cosine of each field's phase instead of its number. The phase is 2 pi times the number,
            counted from 0, divided by the number of values: hour / 24, (month - 1) / 12, (dayofyear - 1) / 366.
        scaled: each field scaled to -0.5 .. 0.5 instead of its number: hour / 23 - 0.5, dayofweek / 6 - 0.5,
            (day - 1) / 30 - 0.5, (dayofyear - 1) / 365 - 0.5. These are the time features of GluonTS, and of TSLib with
            `timeenc=1`, whose features of hourly data are `ts.calendar("hour", "dayofweek", "day", "dayofyear",
            scaled=True)`.

    Returns:
        A value of `columns=` of `ts.load`: a pack `(rows, len(fields))` of int8, or of int16 with `"dayofyear"`. With
        `scaled=True` a pack of the same shape, and with `cyclic=True` a pack `(rows, 2 * len(fields))` in which each
        field's sine stands before its cosine; both of float32, or of the `dtype=` of `ts.load`. `"time"` is a column
        `(rows,)` of int64, in the unit of the times.

    Raises:
        ValueError: no field, an unknown one, or one twice; `"time"` with others; or both `cyclic` and `scaled`.
            `ts.load` raises it without `time=`. SchemaError, from `ts.load`: the times are integers, or the hour of
            dates is asked for.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> data = {"t": np.arange("2024-02-28T22", "2024-02-29T02", dtype="datetime64[h]").astype("M8[s]")}
        >>> columns = {"when": ts.calendar("hour", "dayofweek"), "phase": ts.calendar("hour", cyclic=True)}
        >>> stash = ts.load(data, columns, time="t")
        >>> stash["when"].tolist()
        [[22, 2], [23, 2], [0, 3], [1, 3]]
        >>> stash["phase"].shape, stash["phase"][2]
        (torch.Size([4, 2]), tensor([0., 1.]))
    """
    cyclic, scaled = flag(cyclic, "cyclic"), flag(scaled, "scaled")
    if TIME in [field for field in fields if isinstance(field, str)]:
        if len(fields) > 1 or cyclic or scaled:
            raise ValueError('"time" of ts.calendar stands alone, as int64. Make a column of the other fields.')
        return ColumnSpec((Moment(TIME, "number"),), calendar=((TIME, "number"),))
    known = {field for field in fields if isinstance(field, str) and field in _CYCLES}
    if not fields or len(known) < len(fields):
        raise ValueError(
            f"ts.calendar takes some of {', '.join(map(repr, _CYCLES))}, each once, or 'time'; got {list(fields)}."
        )
    if cyclic and scaled:
        raise ValueError("ts.calendar takes cyclic=True or scaled=True, not both. Make a column of each.")
    forms = ("sin", "cos") if cyclic else ("scaled",) if scaled else ("number",)
    pairs = tuple((field, form) for field in fields for form in forms)
    return ColumnSpec(tuple(Moment(field, form) for field, form in pairs), packed=True, calendar=pairs)


def time_field_values(pairs: Sequence[tuple[str, str]], times: Int64s, clock: Clock) -> NDArray[Any]:
    """The values of fields in their forms at times of a clock, `(n, len(pairs))`."""
    if pairs[0][0] == TIME:
        return times[:, None]
    if clock.unit == "d":
        days, seconds = times, np.zeros_like(times)
    else:
        local = wall_clock(times, clock) // (clock.day // _DAY)
        days, seconds = local // _DAY, local % _DAY
    cycles = ((_CYCLES[field], form) for field, form in pairs)
    return np.stack([_values(cycle, form)[cycle.count(days, seconds)] for cycle, form in cycles], axis=1)


def _ticks(times: pa.Array) -> tuple[Int64s, Clock]:
    if pa.types.is_dictionary(times.type):
        times = times.dictionary_decode()
    if pa.types.is_date(times.type):
        return numbers(times.cast(pa.date32()).view(pa.int32())).astype(np.int64), Clock("d", None)
    return numbers(times.view(pa.int64())), Clock(times.type.unit, times.type.tz)
