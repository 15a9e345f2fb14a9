"""A source as units of work, ranges of rows that are decoded on demand, and the one reader of their rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.arrays import numbers, of_numbers
from tensorstash.columns.expression import Compute
from tensorstash.common.threads import map_in_threads, threads
from tensorstash.errors import SourceError, TensorstashError
from tensorstash.sources.pyarrow_texts import may_mention
from tensorstash.sources.storage import without_views
from tensorstash.sources.unreadable import remedy_of_damage

BATCH_ROWS = 262_144  # rows decoded at a time: large enough for vectorized casts, small enough for the cache

Decode = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns of a source that a load reads."""

    names: frozenset[str] | None  # `None`: all columns
    mentions: str = ""  # a printed pyarrow expression, whose columns are also wanted

    def among(self, names: Iterable[str]) -> list[str]:
        """Select the wanted columns among `names`, in order."""
        wanted, text = self.names, self.mentions
        return [name for name in names if wanted is None or name in wanted or (text and may_mention(text, name))]


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that is computed from others while the source is read, and may replace one of its name."""

    field: pa.Field
    inputs: tuple[str, ...]  # empty: the one value that is computed is that of every row
    compute: Compute


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of rows that one thread decodes: a row group, a record batch, a slice of a table."""

    place: str  # its place in the source, for messages
    start: int  # its first row, counted among the loaded rows
    rows: int  # how many of its rows are loaded
    decode: Decode  # names of stored columns -> batches that hold exactly these
    first: int  # its first row, counted in the source; equals `start` if no row before it is left out
    name: Callable[[int], str] | None = None  # the name of a decoded row for messages; `None`: its number
    kept: pa.BooleanArray | None = None  # which decoded rows are loaded; `None`: all
    early: tuple[Derived, ...] = ()  # computed of all decoded rows, in this order
    derived: tuple[Derived, ...] = ()  # computed of the loaded rows alone, in this order

    @property
    def decoded(self) -> int:
        """The number of rows that are decoded."""
        return self.rows if self.kept is None else len(self.kept)

    def loaded(self) -> NDArray[np.int64]:
        """The decoded rows that are loaded, by their numbers in the unit."""
        return np.arange(self.rows) if self.kept is None else np.flatnonzero(numbers(self.kept))

    def name_row(self, at: int) -> str:
        """A decoded row for messages."""
        return f"{self.first + at:,}" if self.name is None else self.name(at)


def _inputs(names: Iterable[str], derived: Sequence[Derived]) -> tuple[list[str], list[Derived]]:
    """The columns that these columns are computed from, and those of `derived` that compute them, in their order."""
    inputs, used = dict.fromkeys(names), list[Derived]()
    for column in reversed(derived):
        if column.field.name in inputs:
            del inputs[column.field.name]
            inputs |= dict.fromkeys(column.inputs)
            used.append(column)
    return [*inputs], used[::-1]


@dataclass(frozen=True, slots=True)
class Source:
    """A source that is ready to be read."""

    label: str
    # unwanted columns of a frame, which are not converted, have the null type or, as times, any of times
    schema: pa.Schema
    units: tuple[Unit, ...]
    pieces: int  # the number of row groups, record batches or slices, with those that a filter excludes
    notes: tuple[str, ...] = ()  # which columns were widened or parsed
    keys: frozenset[str] = frozenset()  # the columns that come from the paths of the files
    copied: bool = False  # whether its rows were copied to a file when it was opened, as those of streams
    is_remote: bool = False  # whether decoding waits for a network

    @property
    def rows(self) -> int:
        """The number of rows in all units."""
        return sum(unit.rows for unit in self.units)

    def unit_of(self, row: int) -> Unit:
        """The unit that has a loaded row."""
        return next(unit for unit in self.units if unit.start <= row < unit.start + unit.rows)

    def name_row(self, row: int) -> str:
        """A loaded row for messages: its number in the source and its place in a file."""
        unit = self.unit_of(row)
        return unit.name_row(int(unit.loaded()[row - unit.start]))


def in_order(pieces: Iterable[tuple[str, int, Decode | None, tuple[Derived, ...]]], label: str) -> tuple[Unit, ...]:
    """Units for the pieces of a source, given as place, rows, decoder and derived columns.

    A piece without a decoder is left out.
    """
    units, start, first = [], 0, 0
    for place, rows, decode, derived in pieces:
        if decode is not None:
            name = None if place == label else partial(_row, place, first)
            units.append(Unit(place, start, rows, decode, first, name, derived=derived))
            start += rows
        first += rows
    return tuple(units)


def _row(place: str, first: int, at: int) -> str:
    return f"{first + at:,} ({place})"


def with_derived(source: Source, derived: Sequence[Derived]) -> Source:
    """The source with derived columns, which replace columns of their names or follow the others."""
    if not derived:
        return source
    by_name = {column.field.name: column.field for column in derived}
    fields = [by_name.pop(field.name, field) for field in source.schema]
    units = tuple(replace(unit, derived=(*unit.derived, *derived)) for unit in source.units)
    return replace(source, schema=pa.schema([*fields, *by_name.values()]), units=units)


def with_rows(
    source: Source,
    names: Sequence[str],
    flags_of: Callable[[Unit, int, pa.RecordBatch], NDArray[np.bool_]],
    what: str,
    progress: bool | None,
) -> Source:
    """The source with the rows whose flags are true; columns that are derived later are computed of these alone.

    `flags_of` takes a batch of the columns `names` and the number of its first row.
    """

    def chosen(unit: Unit) -> Unit:
        found = [flags_of(unit, row, batch) for row, batch in read(unit, names)]
        flags = np.concatenate([np.empty(0, np.bool_), *found])
        rows = int(np.count_nonzero(flags))
        if rows == unit.rows:
            return unit
        if unit.kept is None:
            return replace(unit, rows=rows, kept=of_numbers(flags), early=unit.derived, derived=())
        kept = numbers(unit.kept)
        kept[kept] = flags
        return replace(unit, rows=rows, kept=of_numbers(kept))

    units, start = [], 0
    for unit in map_in_threads(chosen, source.units, threads(), what, progress):
        if unit.rows:
            units.append(replace(unit, start=start))
        start += unit.rows
    return replace(source, units=tuple(units))


@contextmanager
def damage_named(unit: Unit, names: Sequence[str]) -> Iterator[None]:
    """Re-raise decoding errors as a `SourceError` with the unit and the first column that cannot be decoded."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TensorstashError):
            raise
        why = " ".join(str(error).split()).rstrip(".")
        needed, _ = _inputs(names, unit.derived)
        name = _damaged_column(unit, _inputs(needed, unit.early)[0])
        where = "" if name is None else f"column {name!r}: "
        raise SourceError(f"{unit.place} cannot be decoded: {where}{why}. {remedy_of_damage(error)}") from error


def _damaged_column(unit: Unit, names: Sequence[str]) -> str | None:
    """The first column that fails when read on its own; a single column need not be read again."""
    for name in names if len(names) > 1 else ():
        try:
            for _ in unit.decode([name]):
                pass
        except (pa.ArrowException, OSError, ValueError):  # noqa: PERF203  only after a failure
            return name
    return names[0] if len(names) == 1 else None


def read(unit: Unit, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The loaded rows of a unit as batches of these columns, each with the number of its first row among all of them.

    Raises if more or fewer rows are decoded than the unit says. Without a stored column nothing is decoded.
    """
    needed, derived = _inputs(names, unit.derived)
    stored, early = _inputs(needed, unit.early)
    at, row = 0, unit.start
    with damage_named(unit, names):
        for batch in unit.decode(stored) if stored else _rows_alone(unit.decoded):
            first, at = at, at + batch.num_rows
            if at > unit.decoded:
                raise SourceError(f"{unit.place} is damaged: it has more rows than the {unit.decoded:,} of its footer.")
            # with many small files, making a batch anew takes as long as decoding it
            if unit.kept is None and not (early or derived) and len(stored) == len(names):
                yield row, batch
                row += batch.num_rows
                continue
            columns = _with(early, dict(zip(stored, batch.columns)), unit, range(first, at))
            if unit.kept is not None:
                flags = unit.kept.slice(first, batch.num_rows)
                columns = {name: without_views(columns[name]).filter(flags) for name in needed}
            places = range(first, at) if unit.kept is None else first + np.flatnonzero(numbers(flags))
            if len(places):
                columns = _with(derived, columns, unit, places)
                yield row, pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))
                row += len(places)
    if at != unit.decoded:
        raise SourceError(f"{unit.place} is damaged: it has {at:,} rows, its footer says {unit.decoded:,}.")


def _rows_alone(rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of rows whose values are not asked for; without a column, a batch would have no rows."""
    for start in range(0, rows, BATCH_ROWS):
        yield pa.record_batch({"": pa.nulls(min(BATCH_ROWS, rows - start))})


def read_whole(source: Source, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Columns of a small table, without views."""
    batches = [batch for unit in source.units for _, batch in read(unit, names)]
    return {
        name: pa.chunked_array(
            [without_views(batch.column(k)) for batch in batches],
            None if batches else source.schema.field(name).type,
        )
        for k, name in enumerate(names)
    }


def _with(
    derived: Sequence[Derived], columns: dict[str, pa.Array], unit: Unit, places: Sequence[int] | NDArray[np.int64]
) -> dict[str, pa.Array]:
    """The columns of the decoded rows at these places, and those that are derived from them."""
    for column in derived:
        inputs = [columns[name] for name in column.inputs]
        array = column.compute(inputs, unit.place, lambda row: unit.name_row(int(places[row])))
        columns[column.field.name] = array if inputs else array.take(pa.array(np.zeros(len(places), np.int32)))
    return columns
