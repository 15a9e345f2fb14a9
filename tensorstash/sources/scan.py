"""A source as units of work: ranges of rows that are decoded to Arrow batches on demand."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.expression import Compute
from tensorstash.common.memory import lacks_memory
from tensorstash.errors import SchemaError, SourceError, TensorstashError
from tensorstash.sources.pyarrow_texts import may_mention
from tensorstash.sources.unreadable import remedy_of_damage

BATCH_ROWS = 262_144  # rows decoded at a time: large enough for vectorized casts, small enough for the cache

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns of a source that a load reads."""

    names: frozenset[str] | None  # `None`: all columns
    mentions: str = ""  # a printed pyarrow expression, whose columns are also wanted

    def among(self, names: Iterable[str]) -> list[str]:
        """Select the wanted columns among `names`, in order."""
        wanted = self.names
        return [name for name in names if wanted is None or name in wanted or may_mention(self.mentions, name)]


def check_unique(names: Sequence[str], wanted: Wanted, where: str) -> None:
    """Raise if several columns have one wanted name."""
    for name, count in Counter(names).items():
        if count > 1 and wanted.among([name]):
            raise SchemaError(f"Column names must be unique; {where} has {count} columns {name!r}. Rename them.")


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of rows that one thread decodes: a row group, a record batch, a slice of a table."""

    place: str  # its place in the source, for messages
    start: int  # its first row, counted among the loaded rows
    rows: int
    read: Read  # names -> batches that hold exactly these columns
    first: int  # its first row, counted in the source; equals `start` if no row before it is left out
    kept: NDArray[np.uint8] | None = None  # a bit for each row from `first` on, set if the row is loaded; `None`: all
    name: Callable[[int], str] | None = None  # the name of a row for messages; `None`: its number


@dataclass(frozen=True, slots=True)
class Range:
    """The statistics of a column over all row groups; `None` if a row group lacks them."""

    nulls: int | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A source that is ready to be read."""

    label: str
    schema: (
        pa.Schema
    )  # unwanted columns of a frame, which are not converted, have the null type or, as times, any of times
    units: tuple[Unit, ...]
    pieces: int  # the number of row groups, record batches or slices, with those that a filter excludes
    notes: tuple[str, ...] = ()  # which columns were widened or parsed
    range_of: Callable[[str], Range] = lambda _: Range()  # of a column, by its name
    keys: frozenset[str] = frozenset()  # the columns that come from the paths of the files

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
        at = row - unit.start
        if unit.kept is not None:
            at = int(np.flatnonzero(np.unpackbits(unit.kept))[at])
        if unit.name is not None:
            return unit.name(at)
        number = f"{unit.first + at:,}"
        return number if unit.place == self.label else f"{number} ({unit.place})"


def in_order(pieces: Iterable[tuple[str, int, Read | None]]) -> tuple[Unit, ...]:
    """Units for the pieces of a source, given as place, rows and reader. A piece without a reader is left out."""
    units, start, first = [], 0, 0
    for place, rows, reader in pieces:
        if reader is not None:
            units.append(Unit(place, start, rows, reader, first))
            start += rows
        first += rows
    return tuple(units)


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that is computed from others while the source is read."""

    field: pa.Field
    inputs: tuple[str, ...]
    compute: Compute


def with_derived(scanned: Scan, derived: Sequence[Derived]) -> Scan:
    """The scan with derived columns, which replace columns of their names or follow the others."""
    if not derived:
        return scanned
    by_name = {column.field.name: column for column in derived}
    fields = [by_name[field.name].field if field.name in by_name else field for field in scanned.schema]
    fields += [column.field for column in derived if column.field.name not in scanned.schema.names]
    units = tuple(replace(unit, read=partial(_derived_batches, unit, by_name)) for unit in scanned.units)
    return replace(scanned, schema=pa.schema(fields), units=units)


def _derived_batches(unit: Unit, derived: Mapping[str, Derived], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    needed = ([name] if name not in derived else derived[name].inputs for name in names)
    inputs = list(dict.fromkeys(name for group in needed for name in group))
    row = unit.start
    for batch in unit.read(inputs):
        columns = dict(zip(inputs, batch.columns))
        computed = {
            name: column.compute([columns[key] for key in column.inputs], unit.place, row)
            for name, column in derived.items()
            if name in names
        }
        arrays = [computed.get(name, columns.get(name)) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))
        row += batch.num_rows


@contextmanager
def damage_named(unit: Unit, names: Sequence[str]) -> Iterator[None]:
    """Re-raise decoding errors as a `SourceError` with the unit and the first column that cannot be decoded."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TensorstashError) or lacks_memory(error):
            raise
        why = " ".join(str(error).split()).rstrip(".")
        where = f"column {name!r}: " if (name := _damaged_column(unit, names)) is not None else ""
        raise SourceError(f"{unit.place} cannot be decoded: {where}{why}. {remedy_of_damage(error)}") from error


def _damaged_column(unit: Unit, names: Sequence[str]) -> str | None:
    """The first column that fails when read on its own; a single column need not be read again."""
    for name in names if len(names) > 1 else ():
        try:
            for _ in unit.read([name]):
                pass
        except (pa.ArrowException, OSError, ValueError):  # noqa: PERF203  only after a failure
            return name
    return names[0] if len(names) == 1 else None


def read(unit: Unit, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a unit, each with the number of its first row among the loaded rows. Checks the row count."""
    row, end = unit.start, unit.start + unit.rows
    with damage_named(unit, names):
        for batch in unit.read(names):
            if row + batch.num_rows > end:
                raise SourceError(f"{unit.place} is damaged: it has more rows than the {unit.rows:,} of its footer.")
            yield row, batch
            row += batch.num_rows
    if row != end:
        raise SourceError(f"{unit.place} is damaged: it has {row - unit.start:,} rows, its footer says {unit.rows:,}.")
