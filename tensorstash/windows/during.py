"""Spans in time: the rows of an entity in a stretch of time, such as the last 90 days."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import numpy as np
import torch

from tensorstash.common.aliases import meant_by
from tensorstash.common.checks import at_least, flag, is_integer, one_of, shown
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Frequency, frequency, is_zero
from tensorstash.common.keywords import suggests_keywords
from tensorstash.errors import DataError
from tensorstash.gather.rows import Stretches
from tensorstash.gather.span import Span
from tensorstash.native.guide import first_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.fills import empty_values
from tensorstash.windows.shift import FARTHEST, Shift

Side = Literal["left", "right"]

ROW_TIMES = "__time"  # the times of the rows, as a column
_MOST_ROWS = 1 << 31  # of a window, because every batch has a slot for each of them, filled or not
_DAYS = (-73_049, 73_048)  # since 1970, over 400 years, after which the calendar repeats; in ns they fit into 64 bits
_RECENT = 18_262  # 2020-01-01: messages give the first example from this day on


@suggests_keywords
@dataclass(frozen=True, slots=True)
class During:
    """A span in time: the rows of an entity in a stretch around the time t of a window, at most the newest `max_rows`.

    The batch holds `(batch, max_rows, ...)`: empty slots, marked in `<span>.observed`, and then the rows in the order
    of time. Rows of one time are all inside or all outside; only `max_rows` divides them. An empty slot has no time, so
    that columns of `ts.calendar` are -1 or NaN there.

    With `at=`, t is the time in the frame. Otherwise it is the time of the anchor. With a horizon this is its first
    slot, and the stretch includes its start, not its end; without one it is the last row of the window, and the stretch
    includes its end, not its start, so that this row and others of its time are seen.

    Args:
        column: the column, or a pack.
        start: where the stretch begins, counted from t: a duration as polars writes it, such as "-90d", "-12h" or
            "-1mo"; calendar durations count in the zone of the times. An integer for integer times.
        stop: where it ends, likewise: "0d" is t itself, "30d" is in the future.
        max_rows: the length of the span; if the stretch has more rows, the newest are taken.
        min_rows: windows with fewer rows in the stretch are left out.
        age: batches also hold `<span>.age`, `(batch, max_rows)` int64: t minus the time of the row, in the unit of the
            times; 0 where a slot is empty.
        closed: `"left"`: the stretch includes its start, not its end; `"right"`: its end, not its start. `None`: as
            above; with `at=` the `closed=` of the windows.

    Raises:
        ValueError: a bound that is no duration or integer, or start >= stop for some time: "-1mo" is before "-27d" for
            all times, and not before "-28d" for the 28th of March.

    Example:
        >>> import tensorstash as ts
        >>> events = {"card": ["a", "a", "a", "b"], "t": [1, 8, 9, 9], "amount": [5.0, 6.0, 7.0, 8.0]}
        >>> stash = ts.load(events, ["amount"], entity="card", time="t")
        >>> past = ts.During("amount", -7, 0, max_rows=2, age=True)
        >>> windows = ts.Windows(stash, spans={"past": past}, at={"card": ["a", "b", "a"], "t": [10, 9, 8]})
        >>> batch = windows[:]
        >>> batch["past"].tolist(), batch["past.age"].tolist()
        ([[6.0, 7.0], [nan, nan], [nan, 5.0]], [[2, 1], [0, 0], [0, 7]])
    """

    column: str
    start: int | str
    stop: int | str
    _: KW_ONLY
    max_rows: int
    min_rows: int = 0
    age: bool = False
    closed: Side | None = None

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "max_rows": at_least(1, self.max_rows, "max_rows", below=_MOST_ROWS),
            "min_rows": at_least(0, self.min_rows, "min_rows"),
            "age": flag(self.age, "age"),
            "closed": one_of(self.closed, (None, *get_args(Side)), "closed"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.min_rows > self.max_rows:
            raise ValueError(f"min_rows must be at most max_rows={self.max_rows}, got {self.min_rows}.")
        unit = "ns" if "ns" in f"{self.start}{self.stop}" else "us"  # 64 bits hold centuries in us, not in ns
        clock = Clock(None if is_integer(self.start) and is_integer(self.stop) else unit, None)
        start, stop = _shifts(self, clock, "ts.During")
        _check_bounds(self, start, stop, clock)


def _check_bounds(span: During, start: Shift, stop: Shift, clock: Clock) -> None:
    """Raise `ValueError` unless start < stop for every time: months and business weeks vary in length."""
    is_fixed = start.step.kind == stop.step.kind == "ticks"
    times = np.zeros(1, np.int64) if is_fixed else np.arange(*_DAYS) * clock.day
    first, after = start.moved(times), stop.moved(times)
    empty = np.flatnonzero(first >= after)
    if len(empty) == len(times):
        past = (-7, 0) if clock.unit is None else ("-90d", "0d")
        raise ValueError(
            f"A span in time must have start < stop, got {span.start!r} and {span.stop!r} for {span.column!r}. The "
            f"past has a minus: start={past[0]!r}, stop={past[1]!r}."
        )
    if len(empty):
        k = empty[np.searchsorted(empty, _RECENT - _DAYS[0]) % len(empty)]
        t, low, high = (clock.format(int(moved[k])) for moved in (times, first, after))
        raise ValueError(
            f"A span in time must have start < stop for every time t, got {span.start!r} and {span.stop!r} for "
            f"{span.column!r}: for t={t} it begins at {low} and ends at {high}. Write both in months, or both in days."
        )


@dataclass(frozen=True, eq=False, slots=True)
class TimeSpan:
    """Spans over one stretch of time, whose rows are found once for all of them."""

    start: Shift
    stop: Shift
    closed: str
    max_rows: int
    spans: tuple[Span, ...]  # rows counted back from the end of the stretch; ages are distances of `ROW_TIMES`
    fills: Mapping[str, torch.Tensor]  # of empty slots, by column
    min_rows: int
    named: str  # the span that asks for `min_rows`

    @property
    def shown(self) -> tuple[Span, ...]:
        """The spans without ages."""
        return tuple(span for span in self.spans if not span.is_distance)

    @property
    def is_ahead(self) -> bool:
        """Whether it reaches into the future of its window."""
        return self.stop.steps > 0

    @property
    def texts(self) -> list[str]:
        """The spans as text, for a repr."""
        brackets = "[)" if self.closed == "left" else "(]"
        stretch = f"{brackets[0]}{self.start.text}, {self.stop.text}{brackets[1]}"
        aged = {span.name: ", with age" for span in self.spans if span.is_distance}
        return [
            f"{span.name}={span.column}{stretch}, at most {self.max_rows}{aged.get(f'{span.name}.age', '')}"
            for span in self.shown
        ]

    def find(self, times: Int64s, low: Int64s, high: Int64s, moments: Int64s, stop: Int64s | None = None) -> Stretches:
        """The rows in the stretches around these moments, among the rows `[low, high)` of their entities; any shape.

        `stop` is the row after the last row of each stretch, if it is known already.
        """
        after = int(self.closed == "right")  # then rows at the start are outside, and rows at the stop inside
        first = first_rows(times, low, high if stop is None else stop, self.start.moved(moments) + after)
        if stop is None:
            stop = first_rows(times, first, high, self.stop.moved(moments) + after)
        return Stretches(stop, np.minimum(stop - first, self.max_rows), moments)


def time_spans(stash: Stash, spans: Mapping[str, During], closed: str) -> tuple[TimeSpan, ...]:
    """The spans in time, grouped by the stretch of time that they cover."""
    if not spans:
        return ()
    if stash.time is None:
        raise ValueError("Spans in time need times, and this stash has none. Load it with time=.")
    first, last = stash.time_range
    if first is not None and last is not None and max(-first, last) >= 1 << 62:  # moved times must fit into 64 bits
        raise DataError(
            f"Spans in time need times within 2**62 ticks of 0, got {stash.clock.format(first)} to "
            f"{stash.clock.format(last)}. Leave such rows out with filter=."
        )
    alike: dict[tuple[Shift, Shift, str, int], dict[str, During]] = {}
    for name, span in spans.items():
        stretch = (*_shifts(span, stash.clock, repr(name)), span.closed or closed, span.max_rows)
        alike.setdefault(stretch, {})[name] = span
    return tuple(_time_span(stash, stretch, members) for stretch, members in alike.items())


def _time_span(stash: Stash, stretch: tuple[Shift, Shift, str, int], members: Mapping[str, During]) -> TimeSpan:
    start, stop, closed, max_rows = stretch
    columns = [Span(name, span.column, -max_rows, 0) for name, span in members.items()]
    ages = [
        Span(f"{name}.age", ROW_TIMES, -max_rows, 0, is_distance=True) for name, span in members.items() if span.age
    ]
    empty = empty_values(stash, columns, {}, timed=False) | {ROW_TIMES: torch.zeros((), dtype=torch.int64)}
    strictest = max(members, key=lambda name: members[name].min_rows)
    return TimeSpan(start, stop, closed, max_rows, (*columns, *ages), empty, members[strictest].min_rows, strictest)


def _shifts(span: During, clock: Clock, whose: str) -> tuple[Shift, Shift]:
    return _shift(span.start, clock, f"start of {whose}"), _shift(span.stop, clock, f"stop of {whose}")


def _shift(length: int | str, clock: Clock, what: str) -> Shift:
    size: int | str
    if clock.unit is None:
        if not is_integer(length):
            raise ValueError(f"The {what} must be an integer, as the times are, got {length!r}.")
        is_back, size = int(length) < 0, abs(int(length))
    else:
        is_back, size = str(length).startswith("-"), str(length).removeprefix("-")
    if size == 0 or is_zero(size):
        return Shift(length, Frequency("", "ticks", 1, 0, clock), 0)
    try:
        step = frequency(size, clock, None)
    except ValueError as error:
        rule = "a duration as polars writes it, such as '-90d' or, alone, '-1mo', or an integer for integer times"
        meant = meant_by(size)
        if "multiple" in str(error):
            rule, meant = f"a multiple of the unit of the times, {clock.unit!r}", None
        remedy = "" if meant is None else f" Write {'-' * is_back + meant!r}."
        raise ValueError(f"The {what} must be {rule}, got {shown(length)}.{remedy}") from error
    shift = Shift(length, step, -1 if is_back else 1)
    if shift.most_ticks >= FARTHEST:
        raise ValueError(f"The {what} must be less than 2**61 ticks from the window, got {length!r}.")
    return shift
