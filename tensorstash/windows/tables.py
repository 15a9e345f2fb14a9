"""Tables: other stashes that spans in time take rows from, seen from the entities and the times of windows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from tensorstash.common.clock import NANOSECONDS, Clock
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.text import type_text
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.native.versions import Versions, reach_of, spacing_of
from tensorstash.stash.interop import arrow_column
from tensorstash.stash.stash import Stash
from tensorstash.windows.entity_numbers import find_entities

FARTHEST_TIME = 1 << 62  # ticks from 0: times that spans are counted from must fit into 64 bits when they are moved


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """The stash that a span in time takes rows from, which may be that of the windows."""

    name: str | None  # in `tables=`; `None`: the windows' own stash
    by: tuple[str, ...] | None  # the static columns that name the entity in it
    stash: Stash
    entity: Int32s | None  # of each entity of the windows its own number in the stash, or -1; `None`: the same number
    clock: Clock  # the finest unit of the windows' times and of the stash's, and the zone of the windows'
    window_ticks: int  # of this clock in a unit of the windows' times
    time_ticks: int  # likewise of the stash's times
    known_ticks: int  # likewise of its known times

    @property
    def times(self) -> Int64s:
        """`(rows,)`, in the unit of the stash."""
        assert self.stash.time is not None
        return self.stash.time.numpy()

    def rows_of(self, entities: Int64s) -> tuple[Int64s, Int64s]:
        """The first row of entities of the windows, and the row after their last one, of any shape."""
        offsets = self.stash.offsets.numpy()
        if self.entity is None:
            return offsets[entities], offsets[entities + 1]
        own = self.entity[entities]
        low = offsets[own]  # of -1 the number of rows, where no row follows
        return low, np.maximum(low, offsets[own + 1])

    def versions(self) -> Versions:
        """The times of the rows, and the order in which their versions lie."""
        stash, known = self.stash, self.stash.known
        reach, least = _order_of(stash) if stash.is_by_known else (None, 1)
        return Versions(
            self.times,
            None if known is None else known.numpy(),
            reach,
            self.time_ticks,
            min(least * self.time_ticks or FARTHEST_TIME, FARTHEST_TIME),
            stash.info.known is not None and stash.info.known.events,
        )

    def too_late(self, moments: Int64s) -> Int64s | None:
        """The first known time of the stash that is at or after moments of the clock; `None` without known times."""
        return None if self.stash.known is None else -(-moments // self.known_ticks)

    def bounds(self, moments: Int64s) -> Int64s:
        """The first time of the stash that is at or after moments of the clock."""
        return moments if self.time_ticks == 1 else -(-moments // self.time_ticks)

    def moments(self, times: Int64s) -> Int64s:
        """Times of windows as ticks of the clock."""
        return times if self.window_ticks == 1 else times * self.window_ticks

    def check_moments(self, first: int, last: int, clock: Clock) -> None:
        """Raise `DataError` unless the times of windows, of a clock, can be counted from in ticks of this one."""
        if max(-first, last) * self.window_ticks >= FARTHEST_TIME:
            finest = f" in {self.clock.unit!r}, the finest unit of the table {self.name!r}" * (self.window_ticks > 1)
            raise DataError(
                f"Spans in time need times within 2**62 ticks of 0{finest}, got {clock.format(first)} to "
                f"{clock.format(last)}. Leave such rows out with filter=, or load times with a coarser unit."
            )


# of stashes whose rows are in the order of known times; looked at once for all windows over them
_orders: WeakKeyDictionary[Stash, tuple[Int64s, int]] = WeakKeyDictionary()


def _order_of(stash: Stash) -> tuple[Int64s, int]:
    """How late the times of blocks of rows reach, and the least difference of different times, in their unit."""
    if stash not in _orders:
        assert stash.time is not None
        times, (first, last) = stash.time.numpy(), stash.time_range
        least = spacing_of(times) if (last or 0) - (first or 0) < FARTHEST_TIME else 1
        _orders[stash] = reach_of(times, stash.offsets.numpy()), least
    return _orders[stash]


def table_of(stash: Stash, name: str | None, tables: Mapping[str, Stash], by: tuple[str, ...] | None) -> Table:
    """A table as the windows of a stash see it; without a name, their own stash."""
    table = stash if name is None else tables[name]
    if stash.time is None:
        raise ValueError("Spans in time need times, and this stash has none. Load it with time=.")
    if table.time is None:
        raise ValueError(
            f"A table must have times, by which spans find its rows, and {name!r} has none. Load it with time=."
        )
    clock = _common_clock(stash.clock, table.clock, table, str(name))
    entity = None if name is None else _entities(stash, table, name, by)
    return Table(name, by, table, entity, clock, *_ticks(clock, stash, table))


def checked_tables(tables: object) -> dict[str, Stash]:
    """The tables of `tables=` by name."""
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise TypeError(
            f"tables must be a mapping from names to stashes, got {type_text(tables)}. Write {{'prices': stash}}."
        )
    for name, table in tables.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"Names of tables must be texts, got {name!r}. Write {str(name) or 'prices'!r}.")
        if not isinstance(table, Stash):
            raise TypeError(
                f"A table must be a stash, ts.load(...), got {type_text(table)} for {name!r}. Load it first."
            )
    return dict(tables)


def check_used(tables: Mapping[str, Stash], used: Collection[str]) -> None:
    """Raise for a table that no span takes rows from; its name may be misspelt."""
    for name in tables:
        if not used:
            raise ValueError(
                f"tables= must hold tables that spans take rows from, and no span has table=, got {name!r}. Write "
                f"ts.During(..., table={name!r}), or leave it out."
            )
        if name not in used:
            raise unknown(name, used, "spans=", "table")


def table_named(name: str, tables: Mapping[str, Stash]) -> Stash:
    """A table by its name."""
    if name not in tables:
        raise unknown(name, tables, "tables=", "table")
    return tables[name]


def _ticks(fine: Clock, stash: Stash, table: Stash) -> tuple[int, int, int]:
    """Ticks of a clock in a unit of the times of a stash, of the times of a table, and of its known times."""
    known = table.clock if table.known is None else table.known_clock
    units = (1 if fine.unit is None else NANOSECONDS[str(clock.unit)] for clock in (stash.clock, table.clock, known))
    window, time, version = (unit // (1 if fine.unit is None else NANOSECONDS[fine.unit]) for unit in units)
    return window, time, version


def _common_clock(own: Clock, other: Clock, table: Stash, name: str) -> Clock:
    """The clock by which the times of windows, of a table and of its versions can all be told exactly."""
    kinds = ["integers" if clock.unit is None else f"times with zone={clock.zone!r}" for clock in (other, own)]
    if (own.unit is None, own.zone is None) != (other.unit is None, other.zone is None):
        raise SchemaError(
            f"The times of a table must be of the kind of the windows' times; those of {name!r} are {kinds[0]}, and "
            f"those of the windows {kinds[1]}. Convert one of them before loading.{own.hint or other.hint}"
        )
    if own.unit is None:
        return own
    units = [str(own.unit), str(other.unit), *([] if table.known is None else [str(table.known_clock.unit)])]
    return Clock(min(units, key=NANOSECONDS.__getitem__), own.zone)


def _entities(stash: Stash, table: Stash, name: str, by: tuple[str, ...] | None) -> Int32s:
    """The number in a table of each entity of a stash, -1 for one that it lacks."""
    import pyarrow as pa

    wanted, called = [*stash.entity_names], "the entities of the windows"
    if by is not None:
        wanted, called = [*by], f"by={by[0] if len(by) == 1 else [*by]!r}"
        for column in by:
            _check_static(stash, column)
    if not table.entity_names:
        if by is not None:
            raise ValueError(
                f"by= names the entity in a table, and {name!r} has none: it is the same for all. Leave {called} out."
            )
        return np.zeros(len(stash.offsets) - 1, np.int32)
    if len(wanted) != len(table.entity_names):
        have = ", ".join(map(repr, table.entity_names))
        raise SchemaError(
            f"The entity of a table is found by as many columns as it has; {name!r} has {have}, and {called} "
            f"{'are' if by is None else 'is'} {', '.join(map(repr, wanted)) or 'none'}. Name the static columns that "
            "hold them: by=."
        )
    columns = stash.names().arrow if by is None else [arrow_column(stash, one, stash.static[one]) for one in by]
    chunked = [(column, pa.chunked_array([array])) for column, array in zip(wanted, columns)]
    return find_entities(table, chunked, "the windows", f"the table {name!r}")


def _check_static(stash: Stash, column: str) -> None:
    if column not in stash.static:
        raise unknown(column, stash.static, "the stash of the windows", "static column")
    if stash.about(column).kind == "hashed":
        raise SchemaError(
            f"by= must name a static column of texts or integers; {column!r} is hashed. Load it as texts."
        )
