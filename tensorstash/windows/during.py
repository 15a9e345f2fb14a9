"""`ts.During`: a span in time, such as the last 90 days, and its checks."""

import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

import numpy as np

from tensorstash.common.aliases import meant_by
from tensorstash.common.checks import at_least, flag, is_integer, names_in, one_of, shown
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import Frequency, frequency, is_zero
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.text import type_text
from tensorstash.windows.shift import FARTHEST, Shift

Side = Literal["left", "right"]

MOST_ROWS = 1 << 31  # of a window, because every batch has a slot for each of them, filled or not
_DAYS = (-73_049, 73_048)  # since 1970, over 400 years, after which the calendar repeats; in ns they fit into 64 bits
_RECENT = 18_262  # 2020-01-01: messages give the first example from this day on


@suggests_keywords
@dataclass(frozen=True, slots=True)
class During:
    """A span in time: the rows of an entity in a stretch around the time t of a window.

    With `max_rows`, the batch holds `(batch, max_rows, ...)`: empty slots, marked in `<span>.observed`, and then the
    newest rows in the order of time. Rows of one time are all inside or all outside; only `max_rows` divides them. With
    `every`, the stretch is cut into equal buckets, closed on the same side as the stretch, and the batch holds
    `(batch, buckets, ...)`: in each slot the row with the newest time in its bucket, of equal times the last one. An
    empty slot has no time, so that columns of `ts.calendar` are -1 or NaN there.

    With `table`, the rows are those of another stash, which `ts.Windows(..., tables={"prices": prices})` names: of the
    entity with the same name, or of the one that static columns of the windows name, `by="site"`. A table without
    entities is the same for all, and an entity that the table lacks has no rows in it. Bounds are compared exactly if
    the units of the times differ.

    A table with known times (`ts.load(..., known=)`) is seen as it was at t: of each time, the newest version that was
    known before t (with `closed="right"`: up to t). If its rows are events (`duplicates="keep"`), each is seen from
    when it was known.

    With `at=`, t is the time in the frame. Otherwise it is the time of the anchor. With a horizon this is its first
    slot, and the stretch includes its start, not its end; without one it is the last row of the window, and the stretch
    includes its end, not its start, so that this row and others of its time are seen.

    Args:
        column: the column, or a pack.
        start: where the stretch begins, counted from t: a duration as polars writes it, such as "-90d", "-12h" or
            "-1mo"; calendar durations count in the zone of the times. An integer for integer times.
        stop: where it ends, counted from t, a duration or an integer: "0d" is t itself, "30d" is in the future.
        max_rows: the number of slots; if the stretch has more rows, the newest are taken. Without it give `every`.
        every: the length of a bucket, of which the stretch holds a whole number: a duration of
            a fixed number of hours or less ("1d" too, if the times have no zone), or an integer for integer times.
            Without it give `max_rows`.
        min_rows: windows with fewer rows in the stretch, or with `every` fewer filled buckets, are left out. By default
            none are.
        age: `True`: batches also hold `<span>.age`, `(batch, slots)` int64: t minus the time of the row, in the unit of
            the times; 0 where a slot is empty. For a table with known times also `<span>.delay`: t minus the known
            time. Both are in the finest unit of the windows' times, the table's and its known times.
        closed: `"left"`: the stretch includes its start, not its end; `"right"`: its end, not its start. `None`: as
            above; with `at=` the `closed=` of the windows.
        table: the name in `tables=` of `ts.Windows` of the stash that the rows are taken from; `None`: that of the
            windows.
        by: the static column of the windows' stash that names the entity in the table, or a list of them if the
            entities of the table have several columns; `None`: the entity of the same name.

    Raises:
        ValueError: a bound that is no duration or integer, or start >= stop for some time: "-1mo" is before "-27d" for
            all times, and not before "-28d" for the 28th of March; `every` does not divide the stretch.

    Example:
        >>> import tensorstash as ts
        >>> events = {"card": ["a", "a", "a", "b"], "t": [1, 8, 9, 9], "amount": [5.0, 6.0, 7.0, 8.0]}
        >>> stash = ts.load(events, ["amount"], entity="card", time="t")
        >>> past = ts.During("amount", -7, 0, max_rows=2, age=True)
        >>> at = {"card": ["a", "b", "a"], "t": [10, 9, 8]}
        >>> windows = ts.Windows(stash, spans={"past": past}, at=at)
        >>> batch = windows[:]
        >>> batch["past"].tolist(), batch["past.age"].tolist()
        ([[6.0, 7.0], [nan, nan], [nan, 5.0]], [[2, 1], [0, 0], [0, 7]])
        >>> prices = ts.load({"day": [6, 8, 10], "price": [1.0, 1.5, 2.0]}, ["price"], time="day")
        >>> price = ts.During("price", -4, 0, every=2, table="prices")
        >>> spans, at = {"price": price}, {"card": ["a"], "t": [10]}
        >>> priced = ts.Windows(stash, spans=spans, tables={"prices": prices}, at=at)
        >>> priced[:]["price"].tolist()
        [[1.0, 1.5]]
    """

    column: str
    start: int | str
    stop: int | str
    _: KW_ONLY
    max_rows: int | None = None
    every: int | str | None = None
    min_rows: int = 0
    age: bool = False
    closed: Side | None = None
    table: str | None = None
    by: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if (self.max_rows is None) == (self.every is None):
            raise ValueError(
                "A span in time must have max_rows=, the number of its slots, or every=, the length of each, got "
                f"{'none' if self.max_rows is None else 'both'} of them for {self.column!r}."
            )
        checked: dict[str, object] = {
            "start": _plain(self.start),
            "stop": _plain(self.stop),
            "every": _plain(self.every),
            "max_rows": None if self.max_rows is None else at_least(1, self.max_rows, "max_rows", below=MOST_ROWS),
            "min_rows": at_least(0, self.min_rows, "min_rows"),
            "age": flag(self.age, "age"),
            "closed": one_of(self.closed, (None, *get_args(Side)), "closed"),
            "by": _checked_by(self.by, self.table),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        # 64 bits hold centuries in us, not in ns
        unit = "ns" if "ns" in f"{self.start}{self.stop}{self.every}" else "us"
        clock = Clock(None if is_integer(self.start) and is_integer(self.stop) else unit, None)
        start, stop = shifts_of(self, clock, "ts.During")
        _check_bounds(self, start, stop, clock)
        slots, _ = buckets_of(self, start, stop, clock, "ts.During")
        if self.min_rows > slots:
            what = f"max_rows={slots}" if self.every is None else f"the number of buckets, {slots}"
            raise ValueError(f"min_rows must be at most {what}, got {self.min_rows}.")

    @property
    def by_names(self) -> tuple[str, ...] | None:
        """The static columns that name the entity in the table; `None`: its own name."""
        return (self.by,) if isinstance(self.by, str) else None if self.by is None else tuple(self.by)


def _plain(length: Any) -> Any:
    """A length of time as it is kept, so that spans can be compared and hashed."""
    plain = length.item() if isinstance(length, np.ndarray) and not length.ndim else length
    return operator.index(plain) if is_integer(plain) else plain


def _checked_by(by: str | Sequence[str] | None, table: str | None) -> str | tuple[str, ...] | None:
    """`by=` as it is kept, so that spans can be compared and hashed."""
    if table is not None and not isinstance(table, str):
        raise TypeError(
            f"table must be the name of a table, got {type_text(table)}. Write table='prices', and in ts.Windows "
            "tables={'prices': stash}."
        )
    if by is not None and table is None:
        raise ValueError(f"by= names the entity in a table, got by={by!r} without table=. Leave it out.")
    return by if by is None or isinstance(by, str) else tuple(names_in(by, "by"))


def _check_bounds(span: During, start: Shift, stop: Shift, clock: Clock) -> None:
    """Raise `ValueError` unless start < stop for every time: months and business weeks vary in length."""
    is_fixed = start.step.kind == stop.step.kind == "ticks"
    times = np.zeros(1, np.int64) if is_fixed else np.arange(*_DAYS) * clock.day
    first, after = start.moved(times), stop.moved(times)
    empty = np.flatnonzero(first >= after)
    if len(empty):
        k = empty[np.searchsorted(empty, _RECENT - _DAYS[0]) % len(empty)]
        t, low, high = (clock.format(int(moved[k])) for moved in (times, first, after))
        past = "-7 to 0" if clock.unit is None else "'-90d' to '0d', with both in months or both in days"
        raise ValueError(
            f"A span in time must have start < stop for every time t, got {span.start!r} and {span.stop!r} for "
            f"{span.column!r}: for t={t} it begins at {low} and ends at {high}. The past has a minus, as {past}."
        )


def shifts_of(span: During, clock: Clock, whose: str) -> tuple[Shift, Shift]:
    """Where a span begins and ends, counted from the time of a window in ticks of a clock."""
    return _shift(span.start, clock, f"start of {whose}"), _shift(span.stop, clock, f"stop of {whose}")


def buckets_of(span: During, start: Shift, stop: Shift, clock: Clock, whose: str) -> tuple[int, int | None]:
    """The number of slots of a span, and the ticks of a clock in each bucket of `every=`."""
    if span.every is None:
        assert span.max_rows is not None
        return span.max_rows, None
    every = _shift(span.every, clock, f"every of {whose}")
    for argument, shift in (("every", every), ("the start", start), ("the stop", stop)):
        if shift.step.kind != "ticks":
            where = f" in the zone {clock.zone}, where days differ" if shift.step.kind == "days" else ""
            raise ValueError(
                f"Buckets of every= are equally long; {argument} {shift.text!r} has no fixed length{where}. Write it "
                "in hours."
            )
    ticks, length = every.ticks, stop.ticks - start.ticks
    if ticks < 1 or length % ticks:
        raise ValueError(
            f"every= must divide its stretch into whole buckets, got {span.every!r} for {span.start!r} to "
            f"{span.stop!r} of {span.column!r}. Change one of them."
        )
    return at_least(1, length // ticks, "The number of buckets", below=MOST_ROWS), ticks


def _shift(length: int | str, clock: Clock, what: str) -> Shift:
    size: int | str
    if clock.unit is None:
        if not is_integer(length):
            raise ValueError(f"The {what} must be an integer, as the times are, got {shown(length)}.{clock.hint}")
        is_back, size = int(length) < 0, abs(int(length))
    else:
        is_back, size = str(length).startswith("-"), str(length).removeprefix("-")
    if size == 0 or is_zero(size):
        return Shift(length, Frequency("", "ticks", 1, 0, clock), 0)
    try:
        step = frequency(size, clock, None)
    except ValueError as error:
        rule = "a duration as polars writes it, such as '-90d' or, alone, '-1mo', or an integer for integer times"
        meant = "0d" if size in ("", "0", "None") else meant_by(size)
        if "multiple" in str(error):
            rule, meant = f"a multiple of the unit of the times, {clock.unit!r}", None
        remedy = "" if meant is None else f" Write {'-' * is_back + meant!r}."
        raise ValueError(f"The {what} must be {rule}, got {shown(length)}.{remedy}") from error
    shift = Shift(length, step, -1 if is_back else 1)
    if shift.most_ticks >= FARTHEST:
        raise ValueError(f"The {what} must be less than 2**61 ticks from the window, got {length!r}.")
    return shift
