"""Where the rows of a series are in a source: what `layout=` and `ts.regular` ask for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensorstash.columns.expression import Expression, is_expression
from tensorstash.columns.polars_texts import short_text
from tensorstash.columns.spec import ColumnSpec
from tensorstash.common.checks import is_integer
from tensorstash.common.frequency import is_duration

TIME, ROW, VALUE = "time", "row", "value"  # the names of columns that a layout makes


@dataclass(frozen=True, slots=True, repr=False)
class Regular:
    """What `ts.regular` returns."""

    start: str
    every: str | int

    @property
    def step_column(self) -> str | None:
        """The column that holds the step of each series; `None` if all have one."""
        return self.every if isinstance(self.every, str) and not is_duration(self.every) else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the times are computed from."""
        return (self.start,) if self.step_column is None else (self.start, self.step_column)

    def __repr__(self) -> str:
        return f"ts.regular(start={self.start!r}, every={self.every!r})"


def regular(start: str, every: str | int) -> Regular:
    """The times of series in lists that say when they start: `start`, one step later, two steps later, ...

    A value of `time=` of `ts.load` with `layout="lists"`. The time column of the stash is named "time", and has the
    type of `start`.

    Args:
        start: the column with the first time of each series: timestamps, dates, integers, or text in ISO 8601.
        every: the step, as polars writes it (`"15m"`, `"1h"`, `"1d"`, `"1w"`, `"1mo"`, `"1q"`, `"1y"`, `"1bd"`), an
            integer for integer times, or the column that holds the step of each series. In such a column the aliases
            of pandas are read too (`"H"`, `"30min"`, `"W-SUN"`, `"QS"`). Steps of months keep the day of the month, or
            take the last one of a shorter month; steps of business days start on one. Both go by the clock in the time
            zone of `start`.

    Example:
        >>> import tensorstash as ts
        >>> from datetime import date
        >>> data = {"start": [date(2024, 1, 31), date(2024, 3, 1)], "target": [[1.0, 2.0], [3.0]]}
        >>> stash = ts.load(data, ["target"], layout="lists", time=ts.regular(start="start", every="1mo"))
        >>> [stash.clock.format(t) for t in stash.time.tolist()]
        ['2024-01-31', '2024-02-29', '2024-03-01']
    """
    if not isinstance(start, str):
        raise TypeError(f"start= is the name of a column; got {start!r}.")
    if not (isinstance(every, str) and every) and not is_integer(every):
        raise TypeError(f"every= is a duration such as '1h', an integer, or the name of a column; got {every!r}.")
    return Regular(start, every)


@dataclass(frozen=True, slots=True)
class Lists:
    """A row of the source is a series, and its lists hold the values."""

    regular: Regular | None  # `None`: the times are a list too, or there are none
    by_row: bool  # the number of a row is the entity

    @property
    def made(self) -> frozenset[str]:
        """The columns that only the layout makes."""
        return frozenset([*([TIME] if self.regular else []), *([ROW] if self.by_row else [])])

    @property
    def inputs(self) -> frozenset[str]:
        """The source columns that these are made of."""
        return frozenset(self.regular.inputs if self.regular else ())

    def key(self) -> str:
        """A text that is the same in every process."""
        return repr(self)


@dataclass(frozen=True, slots=True)
class Wide:
    """A column of the source is a series."""

    value: str  # the name of the column that holds the values of all series
    members: tuple[str, ...] | Expression | None  # the series, a selector of them, or all columns that are left
    entity: str

    @property
    def made(self) -> frozenset[str]:
        """The columns that only the layout makes."""
        return frozenset([self.value, self.entity])

    @property
    def inputs(self) -> frozenset[str]:
        """The source columns that these are made of, as far as they are known without the source."""
        return frozenset(self.members if isinstance(self.members, tuple) else ())

    def key(self) -> str:
        """A text that is the same in every process."""
        members = self.members.key() if isinstance(self.members, Expression) else repr(self.members)
        return f"wide {self.value!r} {self.entity!r} {members}"


Layout = Lists | Wide


def parse_layout(layout: object, columns: Any, entity: Any, time: Any) -> tuple[Layout | None, Any, Any, str | None]:
    """The layout, and `columns`, `entity` and `time` as they are once each time has a row of its own."""
    if time is not None and not isinstance(time, (str, Regular)):
        raise TypeError(f"time= is the name of a column; got {time!r}.")
    if layout not in (None, "lists", "wide"):
        raise ValueError(
            f"layout= is 'lists' for a series in each row, 'wide' for a series in each column, or None; got {layout!r}."
        )
    if isinstance(time, Regular) and layout != "lists":
        raise ValueError(
            "ts.regular gives the times of lists, so it needs layout='lists'. Write it, or name the time column."
        )
    if layout == "wide":
        value, members, columns = _series_of(columns)
        asked: Layout | None = Wide(value, members, _checked_entity(entity, value))
    elif layout == "lists":
        asked, entity = (
            Lists(time if isinstance(time, Regular) else None, entity is None),
            ROW if entity is None else entity,
        )
    else:
        asked = None
    return asked, columns, entity, TIME if isinstance(time, Regular) else time


def _checked_entity(entity: object, value: str) -> str:
    if not isinstance(entity, str) or entity == value:
        raise ValueError(
            "With layout='wide' the names of the columns are the entities, and entity= is the new name that they go "
            f"under; got entity={entity!r}. Write entity='series'."
        )
    return entity


def _series_of(columns: Any) -> tuple[str, tuple[str, ...] | Expression | None, Any]:
    """The name of the values, the columns that hold them, and `columns` with that name in their place."""
    if columns is None:
        return VALUE, None, [VALUE]
    if not isinstance(columns, Mapping):
        raise TypeError(
            "With layout='wide' the values of all series are one column, which needs a name; got columns="
            f"{columns!r}. Write columns={{'y': [...]}}, or with polars {{'y': pl.exclude('date')}}."
        )
    found = {name: members for name, spec in columns.items() if (members := _members(spec)) is not None}
    if len(found) != 1:
        several = " and ".join(map(repr, found)) or "none"
        raise ValueError(
            "With layout='wide' one entry of columns= is the series, a list of names or a polars selector, and any "
            f"other one is a column that all series share; got {several} as series. Name one list."
        )
    ((name, members),) = found.items()
    given = columns[name]
    spec = replace(given, source=name) if isinstance(given, ColumnSpec) else name
    return name, members, {**columns, name: spec}


def _members(given: Any) -> tuple[str, ...] | Expression | None:
    """The series that an entry of `columns=` stands for; `None` if it is a column that they share."""
    names: Any = given.source if isinstance(given, ColumnSpec) else given
    if isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(name, str) for name in names):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"With layout='wide' each series is named once; {twice[0]!r} is named twice.")
        return tuple(names)
    if not is_expression(names) or not names.meta.has_multiple_outputs():
        return None
    if not names.meta.is_column_selection():
        raise ValueError(
            f"With layout='wide' the series are columns as they are; {short_text(names)} computes them. Select them, "
            "and compute from the values: columns={'y': pl.exclude('date'), 'log': pl.col('y').log()}."
        )
    return Expression(names, None, ())
