"""A source as units of work: stretches of rows that yield Arrow record batches, and nothing decoded yet."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.errors import SourceError
from tensorstash.sources.pyarrow_texts import may_mention

BATCH_ROWS = 262_144  # rows decoded at a time: large enough for vectorized casts, small enough for the cache

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns of a source that a load touches."""

    names: frozenset[str] | None  # `None`: all
    mentions: str = ""  # a printed pyarrow expression that may have more of them

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of some names, in their order."""
        return [name for name in names if self.names is None or name in self.names or may_mention(self.mentions, name)]


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of rows that is decoded by one thread: a row group, a record batch, a slice of a table."""

    place: str  # for errors: where in the source it is
    start: int  # its first row among those that are loaded
    rows: int
    read: Read  # names -> batches that hold exactly these columns
    first: int  # its first row in the source, which is `start` where nothing has been left out before it
    kept: NDArray[np.uint8] | None = None  # bits of the rows from `first` on that are loaded; `None`: all


@dataclass(frozen=True, slots=True)
class Range:
    """What the statistics of a file say of a column: of all row groups, or nothing."""

    nulls: int | None = None
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A source that is ready to be read: nothing has been decoded yet."""

    label: str
    schema: pa.Schema  # unwanted columns of a frame, which nobody looked at, have the null type
    units: tuple[Unit, ...]
    pieces: int  # row groups, record batches or slices, those that a filter excludes too
    notes: tuple[str, ...] = ()  # what differs between files and was made alike
    range_of: Callable[[str], Range] = lambda _: Range()  # what statistics say of a column

    @property
    def rows(self) -> int:
        """Of all units."""
        return sum(unit.rows for unit in self.units)

    def name_row(self, row: int) -> str:
        """A row for messages: its number in the source, and the piece of a file that holds it."""
        unit = next(unit for unit in self.units if unit.start <= row < unit.start + unit.rows)
        at = row - unit.start
        if unit.kept is not None:
            at = int(np.flatnonzero(np.unpackbits(unit.kept))[at])
        number = unit.first + at
        return f"{number:,}" if unit.place == self.label else f"{number:,} ({unit.place})"


@contextmanager
def damage_named(unit: Unit, names: Sequence[str]) -> Iterator[None]:
    """Errors of the libraries name the unit, and the first of the columns that cannot be decoded."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, SourceError):
            raise
        why = " ".join(str(error).split())
        where = f"column {name!r}: " if (name := _damaged_column(unit, names)) is not None else ""
        raise SourceError(f"{unit.place} cannot be decoded: {where}{why}. Write the file again.") from error


def _damaged_column(unit: Unit, names: Sequence[str]) -> str | None:
    """The first column that fails when it is read for itself; the only one need not be read again."""
    for name in names if len(names) > 1 else ():
        try:
            for _ in unit.read([name]):
                pass
        except (pa.ArrowException, OSError):  # noqa: PERF203  only after a failure
            return name
    return names[0] if len(names) == 1 else None


def read(unit: Unit, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a unit, each with its first row among those that are loaded; they are as many as promised."""
    row, end = unit.start, unit.start + unit.rows
    with damage_named(unit, names):
        for batch in unit.read(names):
            if row + batch.num_rows > end:
                raise SourceError(f"{unit.place} holds more rows than the {unit.rows:,} of its footer: it is damaged.")
            yield row, batch
            row += batch.num_rows
    if row != end:
        raise SourceError(
            f"{unit.place} holds {row - unit.start:,} rows, its footer says {unit.rows:,}: it is damaged."
        )
