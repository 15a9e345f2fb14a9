"""The survey of a source: the columns and the memory of a load, known before anything is decoded or allocated."""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import indent

import pyarrow as pa

from tensorstash.columns.codec import Unknown
from tensorstash.columns.column import Column
from tensorstash.columns.names import field_of
from tensorstash.columns.resolve import check_comparable, entity_column, resolve, time_column
from tensorstash.columns.spec import ColumnSpec
from tensorstash.common.html import table
from tensorstash.common.text import aligned, size_text
from tensorstash.errors import ColumnError, SchemaError
from tensorstash.ingest.entities import known_rows, of_shard
from tensorstash.ingest.like import check_columns_like, check_time_like, column_like, entity_like
from tensorstash.ingest.plan_text import (
    HEAD,
    NUMBERS,
    PlannedColumn,
    entity_columns,
    losses,
    planned_column,
    type_name,
)
from tensorstash.ingest.request import Request, Specs, check_names, check_table, kept_expressions
from tensorstash.segments.format import MAX_HEADER, PAGE, pages
from tensorstash.segments.limits import memory_limits, tightest
from tensorstash.sources.derive import bound, check_utf8, fields_of, stored
from tensorstash.sources.file import File
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.kept_rows import columns_of, filtered
from tensorstash.sources.scan import Range, Scan, with_derived
from tensorstash.sources.shapes import shaped
from tensorstash.sources.source import scan
from tensorstash.stash.stash import Stash

_WORTH_A_LINE = 1_000_000  # bytes of page tables
Inputs = Mapping[str, tuple[str, ...]]  # derived columns, and the source columns that each is computed from


@dataclass(frozen=True, slots=True, repr=False)
class Planned:
    """The columns that a load will hold, and what they cost."""

    source: str
    rows: int
    columns: tuple[Column, ...]
    entity: Column | None
    time: Column | None
    known: Column | None  # when each row became known
    known_name: str | None
    static: tuple[Column, ...]  # one value per entity
    derived: Inputs  # computed columns and fields of structs
    pieces: int  # row groups, record batches or slices of the source
    kept: int  # pieces in which the filter keeps rows
    notes: tuple[str, ...]  # differences between files that were unified, and casts that would fail
    free: int = 0  # bytes of memory available when it was surveyed, where shown
    types: Mapping[str, str] = field(default_factory=dict)  # the Arrow type of each source column
    skipped: tuple[str, ...] = ()  # source columns that are never decoded
    ranges: Mapping[str, Range] = field(default_factory=dict)  # statistics of them before the filter, where shown
    chosen_by: str = ""  # the arguments that leave rows out
    duplicates: bool = False  # whether an entity may have several rows of one time
    carried: tuple[Column, ...] = ()  # static columns of `like=`
    unknown: Unknown = "keep"  # what becomes of entities that `like=` lacks
    strangers: str = ""  # what was left out because `like=` lacks it, for a warning
    expressions: Mapping[str, str] = field(default_factory=dict)  # as the header of a stash keeps them
    frequency: int | str | None = None  # the step of time that `like=` keeps
    table: "Planned | None" = None  # the same of the table of static columns, joined by entity
    keys: frozenset[str] = frozenset()  # source columns that come from the paths of the files

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
    def joined(self) -> tuple[Column, ...]:
        """The static columns that come from a table of their own."""
        return () if self.table is None else self.table.columns

    @property
    def nbytes(self) -> int:
        """Bytes that the stash will hold, without static columns: the number of entities is not known yet."""
        return sum(pages(self.rows * column.row_bytes) for column in self.stored)

    @property
    def row_bytes(self) -> int:
        """The same without the rest of the last page of each column: what is shown, because it adds up."""
        return sum(self.rows * column.row_bytes for column in self.stored)

    @property
    def read(self) -> tuple[str, ...]:
        """Source columns that a load reads."""
        return tuple(name for name in self.types if name not in self.skipped and name not in self.derived)

    @property
    def not_kept(self) -> tuple[str, ...]:
        """Source columns that are read only to compute others."""
        keys = [*([self.entity] if self.entity else []), *self.times]
        kept = {member for column in (*self.columns, *self.static, *keys) for member in column.members}
        return tuple(dict.fromkeys(name for inputs in self.derived.values() for name in inputs if name not in kept))

    @property
    def page_tables(self) -> int:
        """Bytes of page tables in each process that maps the stash, in addition to the memory itself."""
        return self.nbytes // PAGE * 8

    @property
    def header_bytes(self) -> int:
        """Room for a header that is not known yet: each name occurs in it up to eight times, escaped up to twice."""
        named = [*self.stored, *self.static, *self.joined, *self.carried, *([self.entity] if self.entity else [])]
        names = [json.dumps(name) for column in named for name in (column.name, *column.members)]
        names.append(json.dumps(self.known_name))
        return 16_384 + 2048 * len(named) + sum(64 + 16 * len(name) for name in names) + self._expression_bytes

    @property
    def _expression_bytes(self) -> int:
        return sum(64 + 8 * len(name) + len(text) for name, text in self.expressions.items())

    @property
    def described(self) -> list[PlannedColumn]:
        """What is said of each column: those of the stash, the entity and the times."""
        source = self.rows, self.types, self.ranges
        found = [planned_column(column, *source, self._role(column)) for column in self.columns]
        found += [planned_column(column, *source, "static") for column in self.static]
        if self.table:
            types = self.table.types
            found += [planned_column(column, self.table.rows, types, {}, "static") for column in self.joined]
        found += [PlannedColumn(column.name, ("like=",), (), "static") for column in self.carried]
        found += entity_columns(self.entity, self.types, self.ranges) if self.entity else []
        names = (self.time.members[0] if self.time else "", self.known_name)
        named = [replace(column, name=str(name)) for column, name in zip(self.times, names)]
        return found + [planned_column(column, *source, role) for column, role in zip(named, ("time", "known"))]

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """A line of cells for each column, under the head `plan_text.HEAD`."""
        return [column.cells for column in self.described]

    def _role(self, column: Column) -> str:
        """What is said of a column that comes from the paths of the files alone: it is the same in all rows of one."""
        return "partition key" if self.keys.issuperset(column.members) else ""

    def _repr_html_(self) -> str:
        caption, *others = html.escape(repr(self)).splitlines()
        notes = "".join(f"<p>{line}</p>" for line in others[len(self.lines) + 1 :])
        return f"<p><b>Plan</b>: {caption}</p>{table(HEAD, self.lines)}{notes}"

    def __repr__(self) -> str:
        least, most = self.row_bytes, sum(column.nbytes or 0 for column in self.described)
        size = f"{least / 1e6:,.1f}" + (f" to {most / 1e6:,.1f}" if most > least else "")
        lines = [
            f"{self.source}: {self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free",
            indent(aligned([HEAD, *self.lines], NUMBERS), "  "),
        ]
        if self.static or self.joined:
            lines.append("static: one value per entity; only a load counts the entities")
        if self.page_tables >= _WORTH_A_LINE:
            lines.append(f"page tables: {size_text(self.page_tables)} in each process")
        if self.kept != self.pieces:
            lines.append(f"{self.chosen_by}: keeps rows of {self.kept:,} of {self.pieces:,} row groups")
        if self.not_kept:
            lines.append(f"read, not kept: {', '.join(self.not_kept)}")
        if self.skipped:
            lines.append(f"skipped: {', '.join(self.skipped)}")
        notes = (*self.notes, *([self.strangers] if self.strangers else []))
        return "\n".join([*lines, *(f"note: {note}" for note in notes)])


@dataclass(frozen=True, slots=True)
class Survey:
    """A source that is ready to be read and what a load of it will hold, and both for the table of static columns."""

    scanned: Scan
    planned: Planned
    table: "Survey | None" = None
    like: Stash | None = None  # where static columns are carried over from


def survey(request: Request, files: Sequence[File] | None, progress: bool | None) -> Survey:
    """Survey the source, or its files; the only values read are those of the columns of the filter and the shard.

    Rows are chosen first; of those alone columns are computed.
    """
    table = None if request.table is None else survey(request.table, None, progress)
    source = scan(request.source, files, request.wanted, request.filter, progress)
    if request.argument != "columns":
        source = replace(source, label=f"{source.label} of {request.argument}=")
    check_utf8(source)
    fields = fields_of(source, request.named, request.wanted.mentions)
    scanned = with_iso_time(stored(with_derived(source, fields)), request.time)
    scanned = with_iso_time(scanned, request.known)
    formulas = bound(request.formulas, request.time, scanned)
    derived = {column.field.name: column.inputs for column in (*fields, *formulas)}
    specs = _chosen_columns(request, scanned.schema, derived)
    members = {str(member) for spec in (*specs.values(), *request.static.values()) for member in spec.members}
    members |= set() if request.known is None else {request.known}
    # a wrong name is refused before the filter reads its columns
    _check_columns(request, scanned, (*request.keys, *sorted(members.difference(request.formulas))))
    rows, filter_columns, strangers = _chosen_rows(request, scanned, progress)
    whole = with_iso_time(shaped(with_derived(rows, formulas), members), request.known)
    planned = _planned(request, whole, specs, derived)
    fields_by_name = {field.name: field for field in (*whole.schema, *source.schema)}
    used = request.keys.union(members, filter_columns, *derived.values())
    planned = replace(
        planned,
        skipped=tuple(name for name in whole.schema.names if name not in used),
        types={name: type_name(fields_by_name[name].type) for name in whole.schema.names},
        table=None if table is None else table.planned,
        keys=source.keys,
        strangers=strangers,
    )
    if table is not None:
        check_table(request, planned.columns, whole, table.planned.columns, table.scanned)
    if planned.header_bytes > MAX_HEADER:
        raise SchemaError(
            f"The header of a stash has at most {size_text(MAX_HEADER)}; for {len(planned.columns):,} columns of "
            f"{whole.label} it may need {size_text(planned.header_bytes)}. Load fewer columns, or pack them: "
            'columns={"x": [...]}.'
        )
    return Survey(whole, planned, table, request.like)


def to_show(surveyed: Survey) -> Planned:
    """What a load will hold, with what only a plan shows.

    That is free memory, the ranges of its columns and notes on the values that it will refuse.
    """
    planned = surveyed.planned
    chosen = [*planned.columns, *planned.static, *([planned.entity] if planned.entity else []), *planned.times]
    names = dict.fromkeys(member for column in chosen for member in column.members)
    ranges = {name: values for name in names if (values := surveyed.scanned.range_of(name)) != Range()}
    notes = [note for column in chosen for note in losses(column, ranges)]
    free = tightest(memory_limits()).free
    return replace(planned, free=free, ranges=ranges, notes=(*planned.notes, *notes))


def _check_columns(request: Request, scanned: Scan, names: Sequence[str]) -> None:
    try:
        for name in names:
            field_of(scanned.schema, name, scanned.label)
    except ColumnError as error:
        if "columns" not in request.of_like:
            raise
        raise ColumnError(f"{error} It is one of like=: add it to the source, or say what to load.") from None


def _chosen_columns(request: Request, schema: pa.Schema, derived: Inputs) -> Specs:
    """The requested columns; by default all source columns that are neither derived nor named by another argument."""
    if request.columns is not None:
        return request.columns
    named = request.keys.union(derived, *(spec.members for spec in request.static.values()))
    return {name: ColumnSpec(name) for name in schema.names if name not in named}


def _chosen_rows(request: Request, scanned: Scan, progress: bool | None) -> tuple[Scan, Sequence[str], str]:
    """The rows of the filter, the shard and `like=`, the columns that the filter reads, and a text for a warning."""
    rows, filter_columns, strangers = scanned, list[str](), ""
    if request.filter is not None:
        condition = request.filter.fitted(scanned.schema)
        filter_columns = columns_of(condition, scanned.schema, scanned.label)
        flags = () if condition.formula is None else bound({"filter=": condition.formula}, request.time, scanned)
        if flags and flags[0].field.type != pa.bool_():
            raise SchemaError(
                f"filter= must be true or false for every row; {condition.formula!r} is {flags[0].field.type}. "
                "Compare it with a value."
            )
        rows = filtered(with_derived(scanned, flags), condition, ["filter="] if flags else filter_columns, progress)
        rows = replace(rows, schema=scanned.schema)
    if request.shard is not None and request.entity is not None:
        rows = of_shard(rows, request.entity, request.shard, progress)
    if request.like is not None and request.entity is not None and request.unknown == "drop":
        rows, strangers = known_rows(rows, request.entity, request.like.entities, progress)
    return rows, filter_columns, strangers


def _planned(request: Request, scanned: Scan, specs: Specs, derived: Inputs) -> Planned:
    schema, where, like = scanned.schema, scanned.label, request.like
    columns, static = (
        tuple(
            column_like(column, spec, like, request.dtype, request.unknown)
            for column, spec in zip(resolve(schema, part, request.dtype, where, argument), part.values())
        )
        for part, argument in ((specs, request.argument), (request.static, "static"))
    )
    check_names(request, columns, static, where)
    if like is not None and "columns" in request.of_like:
        check_columns_like(columns, like, request.dtype, where)
    entity = None if request.entity is None else entity_column(schema, request.entity, where)
    time = None if request.time is None else time_column(schema, request.time, where)
    if like is not None and time is not None and "time" in request.of_like:
        check_time_like(time, like, where)
    known = None if request.known is None else time_column(schema, request.known, where, "known")
    if time is not None and known is not None:
        check_comparable(time, known)
    return Planned(
        source=where,
        rows=scanned.rows,
        columns=columns,
        entity=None if entity is None else entity_like(entity, like, schema, where),
        time=time,
        known=known,
        known_name=request.known_name,
        static=static,
        carried=request.carried,
        derived=derived,
        pieces=scanned.pieces,
        kept=len(scanned.units),
        notes=scanned.notes,
        chosen_by=" and ".join(name for name in ("filter", "shard") if getattr(request, name) is not None),
        duplicates=request.duplicates,
        unknown=request.unknown,
        expressions=kept_expressions(request, columns),
        frequency=request.frequency,
    )
