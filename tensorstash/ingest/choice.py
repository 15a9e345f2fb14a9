"""What a load was asked for and what it will hold: the one record from which keys are read and columns are written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorstash.columns.column import Column
from tensorstash.common.calendar import Calendar
from tensorstash.ingest.request import Request
from tensorstash.segments.format import pages
from tensorstash.sources.read import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A source that is ready to be read, and the columns that a load makes of it."""

    request: Request
    source: Source  # of the rows and columns that are read; computed columns are among them
    rows: int
    columns: tuple[Column, ...]
    static: tuple[Column, ...]  # one value per entity
    carried: tuple[Column, ...]  # static columns of `like=` that the source lacks, whose values are taken over
    entity: Column | None
    time: Column | None
    step: int | str | Calendar | None  # of time, if the rows need not tell it
    known: Column | None  # when each row became known
    read: tuple[str, ...] = ()  # source columns that a load reads; computed columns are not among them
    types: Mapping[str, str] = field(default_factory=dict)  # the Arrow types of the source columns that are used
    skipped: tuple[str, ...] = ()  # source columns that are never decoded
    expressions: Mapping[str, str]  # as the header of a stash keeps them
    strangers: str = ""  # what was left out because `like=` lacks it, for a warning
    untimed: str = ""  # a warning that a column of times is not used
    table: "Choice | None" = None  # the table of static columns, joined by entity

    @property
    def stored(self) -> tuple[Column, ...]:
        """All columns of the segment with a value per row, in their order there: sorted by item size."""
        flat = sorted(self.columns, key=lambda c: (bool(c.shape), c.dtype.itemsize))
        return (*flat, *self.times)

    @property
    def times(self) -> tuple[Column, ...]:
        """The times and the known times."""
        return tuple(column for column in (self.time, self.known) if column)

    @property
    def written_step(self) -> int | str | None:
        """The step of time as a header keeps it; a calendar is a tensor."""
        return None if isinstance(self.step, Calendar) else self.step

    @property
    def joined(self) -> tuple[Column, ...]:
        """The static columns that come from a table of their own."""
        return () if self.table is None else self.table.columns

    @property
    def nbytes(self) -> int:
        """Bytes that the stash will hold, without static columns: the number of entities is not known yet."""
        return sum(pages(self.rows * column.row_bytes) for column in self.stored)

    @property
    def shown_bytes(self) -> int:
        """The same without the rest of the last page of each column: what is shown, because it adds up."""
        return sum(self.rows * column.row_bytes for column in self.stored)

    @property
    def header_bytes(self) -> int:
        """Room for a header that is not known yet: each name occurs in it up to eight times, escaped up to twice."""
        named = [*self.stored, *self.static, *self.joined, *self.carried, *filter(None, [self.entity])]
        names = [json.dumps(name) for column in named for name in (column.name, *column.members)]
        names.append(json.dumps(self.request.known_name))
        expressions = sum(64 + 8 * len(name) + len(text) for name, text in self.expressions.items())
        return 16_384 + 2048 * len(named) + sum(64 + 16 * len(name) for name in names) + expressions
