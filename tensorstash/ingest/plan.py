"""The plan of a load: its columns and its memory, known before anything is decoded or allocated."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import torch

from tensorstash.columns.column import Column
from tensorstash.columns.layout import Regular, Wide
from tensorstash.columns.resolve import entity_column, resolve, time_column
from tensorstash.columns.spec import Columns, ColumnSpec
from tensorstash.errors import NoMemoryError, SegmentError, SourceError
from tensorstash.ingest.clashes import check_names, check_table
from tensorstash.ingest.key import argument_keys, check_share
from tensorstash.ingest.memory import check_columns, sorting_bytes, temporary_bytes, temporary_file
from tensorstash.ingest.plan_text import (
    HEAD,
    aligned,
    column_line,
    entity_lines,
    losses,
    static_line,
    time_line,
    type_name,
)
from tensorstash.ingest.request import Request, Specs, Static, parse_request
from tensorstash.ingest.sharding import of_shard
from tensorstash.segments.directory import opened
from tensorstash.segments.format import PAGE, pages
from tensorstash.segments.limits import directory_limit, disk_limit, memory_limits, tightest
from tensorstash.segments.on_disk import directory_of_file
from tensorstash.sources.derive import bound, with_derived
from tensorstash.sources.fields import fields_of
from tensorstash.sources.file import File
from tensorstash.sources.filter import columns_of, filtered
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.lists import items_of
from tensorstash.sources.locate import find
from tensorstash.sources.per_entity import Series, bound_series, with_fields
from tensorstash.sources.scan import Range, Scan
from tensorstash.sources.shapes import shaped
from tensorstash.sources.source import scan
from tensorstash.sources.storage import stored
from tensorstash.sources.streams import check_repeatable
from tensorstash.sources.wide import long_form

Inputs = Mapping[str, tuple[str, ...]]  # derived columns, and the source columns that each is computed from


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The columns that a load will hold, and what they cost; `print` it."""

    source: str
    rows: int
    columns: tuple[Column, ...]
    entity: Column | None
    time: Column | None
    static: tuple[Column, ...]  # one value per entity
    derived: Inputs  # computed columns and fields of structs
    skipped: tuple[str, ...]  # source columns that are never decoded
    free: int  # bytes of memory available now
    pieces: int  # row groups, record batches or slices of the source
    kept: int  # pieces in which the filter keeps rows
    notes: tuple[str, ...]  # differences between the files that are unified, and casts that would fail
    types: Mapping[str, str]  # the Arrow type of each source column
    ranges: Mapping[str, Range]  # statistics of source columns before the filter; `load` reads none
    chosen_by: str = "filter"  # the arguments that leave rows out
    table: "Plan | None" = None  # the plan of the table of static columns, joined by entity
    temporary: int = 0  # bytes on disk during the load if `ts.per_entity` has to bring rows into order; texts excluded

    @property
    def stored(self) -> tuple[Column, ...]:
        """All columns of the segment with a value per row, in their order there: sorted by item size."""
        flat = sorted(self.columns, key=lambda c: (bool(c.shape), c.dtype.itemsize))
        return (*flat, self.time) if self.time else tuple(flat)

    @property
    def joined(self) -> tuple[Column, ...]:
        """The static columns that come from a table of their own."""
        return () if self.table is None else self.table.columns

    @property
    def nbytes(self) -> int:
        """Bytes that the stash will hold, without static columns: the number of entities is not known yet."""
        return sum(pages(self.rows * column.row_bytes) for column in self.stored)

    @property
    def read(self) -> tuple[str, ...]:
        """Source columns that a load reads."""
        return tuple(name for name in self.types if name not in self.skipped and name not in self.derived)

    @property
    def not_kept(self) -> tuple[str, ...]:
        """Source columns that are read only to compute others."""
        keys = [column for column in (self.entity, self.time) if column]
        kept = {member for column in (*self.columns, *self.static, *keys) for member in column.members}
        return tuple(dict.fromkeys(name for inputs in self.derived.values() for name in inputs if name not in kept))

    @property
    def page_tables(self) -> int:
        """Bytes of page tables in each process that maps the stash, in addition to the memory itself."""
        return self.nbytes // PAGE * 8

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """A line of cells for each column, under the head `plan_text.HEAD`."""
        about = self.rows, self.types, self.ranges
        lines = [column_line(column, *about) for column in self.columns]
        lines += [static_line(column, *about) for column in self.static]
        if self.table:
            lines += [static_line(column, self.table.rows, self.table.types, {}) for column in self.joined]
        lines += entity_lines(self.entity, self.types, self.ranges) if self.entity else []
        return lines + ([time_line(self.time, *about)] if self.time else [])

    def __repr__(self) -> str:
        upper = self.nbytes + sum(self.rows * column.row_bytes for column in self.static)
        upper += sum(self.table.rows * column.row_bytes for column in self.joined) if self.table else 0
        size = f"{self.nbytes / 1e6:,.1f}" + (f" to {upper / 1e6:,.1f}" if upper > self.nbytes else "")
        lines = [
            f"{self.source}: {self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free",
            aligned([HEAD, *self.lines]),
        ]
        if self.static or self.joined:
            lines.append("static: one value per entity; only a load counts the entities")
        lines.append(f"page tables: {self.page_tables / 1e6:,.1f} MB in each process")
        if self.kept != self.pieces:
            lines.append(f"{self.chosen_by}: keeps rows of {self.kept:,} of {self.pieces:,} row groups")
        if self.temporary:
            size = f"{self.temporary / 1e6:,.1f} MB"
            lines.append(
                f"per entity: {size} in a temporary file, unless rows are grouped by entity and ordered by time"
            )
        if self.not_kept:
            lines.append(f"read, not kept: {', '.join(self.not_kept)}")
        lines.append(f"skipped: {', '.join(self.skipped) or 'nothing'}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | Regular | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    schema: Mapping[str, Any] | None = None,
    layout: Literal["lists", "wide"] | None = None,
    shard: tuple[int, int] | None = None,
    filesystem: Any = None,
    share: str | bool | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Plan:
    """Plan what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    Printed, the plan also shows the type of each column in the source; its nulls, minimum and maximum, if Parquet
    files have statistics of them; the number of row groups that remain after a filter; and notes: differences between
    the files, and reasons for which a load will fail. With `share=`, these reasons include a wrong label, Python
    functions in expressions, and too little room in the directory of shared segments. With `file=`, the notes give the
    memory that sorting takes, and say if the disk has too little room. `plan.temporary` is the size of the temporary
    file in which `ts.per_entity` sorts its input, without texts and lists, if rows do not come in order; a note says if
    the temporary directory has too little room for it.

    Only schemas and footers are read, with these exceptions: one column of Arrow files, because only their batches have
    the number of rows; the first batch of lists, for their length, and with `layout="lists"` one list of all rows; CSV
    files and streams; the columns of a filter; and with `shard=` the entity columns. Wrong arguments raise the errors
    of `ts.load`.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> cost = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> cost.rows, cost.nbytes, cost.skipped
        (1000, 16384, ('z',))
    """
    request = parse_request(
        source=source,
        filesystem=filesystem,
        columns=columns,
        static=static,
        entity=entity,
        time=time,
        dtype=dtype,
        filter=filter,
        schema=schema,
        layout=layout,
        shard=shard,
    )
    check_repeatable(source)
    surveyed = survey(request, find(source, filesystem), None)
    scanned, planned = surveyed.scanned, surveyed.planned
    keys = [column for column in (planned.entity, planned.time) if column]
    columns_ = [*planned.columns, *planned.static, *keys]
    names = dict.fromkeys(member for column in columns_ for member in column.members)
    ranges = {name: about for name in names if (about := scanned.range_of(name)) != Range()}
    notes = [note for column in columns_ for note in losses(column, ranges)]
    notes += _spool_notes(planned)
    if share is not None and share is not False:
        notes += _sharing_notes(request, planned, share)
    if file is not None:
        notes += _file_notes(planned, os.path.dirname(os.path.realpath(os.fsdecode(file))))
    return replace(planned, ranges=ranges, notes=(*planned.notes, *notes))


def _sharing_notes(request: Request, planned: Plan, share: str | bool) -> list[str]:
    """A note for each reason for which only a load with `share=` will fail."""

    def check_room() -> None:
        with opened() as directory:
            limits = [*memory_limits(), directory_limit(directory.fd, directory.path)]
            check_columns(planned.nbytes, planned.source, limits)

    checks = (lambda: check_share(share, request.source), lambda: argument_keys(request), check_room)
    found = (_refusal(check) for check in checks)
    return [f"a load with share={share!r} will be refused: {why}" for why in found if why is not None]


def _file_notes(planned: Plan, directory: str) -> list[str]:
    """Notes on the memory and the disk space that a load with `file=` needs."""

    def check_room() -> None:
        with directory_of_file(directory) as opened_:
            limit = disk_limit(opened_.fd, directory)
            check_columns(planned.nbytes, planned.source, [limit], on_disk=True)

    why = _refusal(check_room)
    needed = f"{sorting_bytes(planned.rows) / 1e6:,.1f} MB of memory"
    sorting = f"a load needs {needed} to sort the rows, unless they are grouped by entity and ordered by time"
    return [sorting, *([] if why is None else [f"a load with file= will be refused: {why}"])]


def _spool_notes(planned: Plan) -> list[str]:
    """A note if the temporary file for `ts.per_entity` has too little room."""
    why = _refusal(lambda: temporary_file(planned.temporary)) if planned.temporary else None
    return [] if why is None else [f"a load will be refused if its rows have to be brought into order: {why}"]


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except (ValueError, SegmentError, SourceError, NoMemoryError) as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Survey:
    """A source that is ready to be read and its plan, and both for the table of static columns."""

    scanned: Scan
    planned: Plan
    table: "Survey | None" = None
    series: Series | None = None  # what is computed over the rows of each entity


def survey(request: Request, files: Sequence[File] | None, progress: bool | None) -> Survey:
    """Survey the source, or its files; the only values read are those of the columns of the filter and the shard."""
    table = None if request.table is None else survey(request.table, None, progress)
    source = scan(request.source, files, request.wanted, request.filter, progress, schema=request.schema)
    if request.argument != "columns":
        source = replace(source, label=f"{source.label} of {request.argument}=")
    return surveyed(request, source, table, progress)


def surveyed(request: Request, source: Scan, table: Survey | None, progress: bool | None) -> Survey:
    """The survey of a source as a scan, and that of the table of static columns."""
    fields = fields_of(source, request.named, request.wanted.mentions)
    scanned = with_iso_time(stored(with_derived(source, fields)), request.time)
    if request.layout is not None:
        scanned = with_iso_time(_long_form(request, scanned, progress), request.time)
    derived = bound(request.row_formulas, request.time, scanned)
    ordered = bound_series(
        request.entity_formulas, request.computed, with_derived(scanned, derived), request.entity is not None
    )
    inputs = {column.field.name: column.inputs for column in (*fields, *derived)}
    of_rows = {column.field.name: column.inputs for column in derived}
    inputs |= {column.field.name: _sources(column.inputs, of_rows) for column in ordered}
    types = {field.name: type_name(field.type) for field in source.schema}

    def bound_to(rows: Scan) -> Survey:
        # lists have the length of the first one that the filter keeps
        by_row = with_derived(rows, derived)
        whole = with_fields(_with_shapes(request, by_row, inputs), ordered)
        planned = _bound_plan(request, whole, inputs, types, table)
        if not ordered:
            return Survey(whole, planned, table)
        series = Series(by_row, {one.field.name: one for one in ordered})
        needed = series.inputs([column for column in (*planned.columns, *planned.static) if series.makes(column)])
        temporary = temporary_bytes(planned.rows, [by_row.schema.field(name).type for name in needed])
        return Survey(whole, replace(planned, temporary=temporary), table, series)

    whole = bound_to(scanned)
    if request.filter is None and request.shard is None:
        return whole
    names: list[str] = []
    kept = scanned
    if request.filter is not None:
        names = columns_of(request.filter, scanned.schema, scanned.label)
        kept = filtered(kept, request.filter, names, progress)
    if request.shard is not None and request.entity is not None:
        kept = of_shard(kept, request.entity, request.shard, progress)
    found = bound_to(kept)
    chosen_by = " and ".join(name for name in ("filter", "shard") if getattr(request, name) is not None)
    skipped = tuple(name for name in found.planned.skipped if name not in names)
    return replace(found, planned=replace(found.planned, skipped=skipped, chosen_by=chosen_by))


def _sources(names: Sequence[str], inputs: Inputs) -> tuple[str, ...]:
    """The source columns that some columns, which may be computed themselves, come from."""
    return tuple(dict.fromkeys(source for name in names for source in inputs.get(name, (name,))))


def _long_form(request: Request, scanned: Scan, progress: bool | None) -> Scan:
    """The scan with a row for each time."""
    mentioned = [] if request.filter is None else request.filter.names(scanned.schema)
    if isinstance(request.layout, Wide):
        return long_form(scanned, request.layout, request.named.difference(request.layout.inputs).union(mentioned))
    assert request.layout is not None
    varying, static = request.named_by_rows, request.named_by_static
    every = None if varying is None else varying.union(set(mentioned) - static)
    return items_of(scanned, request.layout, every, static, progress)


def _with_shapes(request: Request, scanned: Scan, inputs: Inputs) -> Scan:
    """The scan with wrapped types, lists and bytes converted to types that tensors can hold."""
    specs = (*_chosen(request, scanned.schema, inputs).values(), *request.static.values())
    return shaped(scanned, {str(member) for spec in specs for member in spec.members})


def _bound_plan(
    request: Request, scanned: Scan, inputs: Inputs, types: Mapping[str, str], table: Survey | None
) -> Plan:
    """The plan for the rows of a scan, whose schema has the derived columns too; `types` are those of the source."""
    schema, where = scanned.schema, scanned.label
    columns = resolve(schema, _chosen(request, schema, inputs), request.dtype, where, request.argument)
    static = resolve(schema, request.static, request.dtype, where, "static")
    check_names(request, columns, static, where)
    if table is not None:
        check_table(request, columns, scanned, table.planned.columns, table.scanned)
    used = request.keys.union(*(column.members for column in (*columns, *static)), *inputs.values())
    return Plan(
        source=where,
        rows=scanned.rows,
        columns=columns,
        entity=None if request.entity is None else entity_column(schema, request.entity, where),
        time=None if request.time is None else time_column(schema, request.time, where),
        static=static,
        derived=inputs,
        skipped=tuple(name for name in schema.names if name not in used),
        free=tightest(memory_limits()).free,
        pieces=scanned.pieces,
        kept=len(scanned.units),
        notes=scanned.notes,
        types={field.name: types.get(field.name, type_name(field.type)) for field in schema},
        ranges={},
        table=None if table is None else table.planned,
    )


def _chosen(request: Request, schema: pa.Schema, inputs: Inputs) -> Specs:
    """The requested columns; by default all source columns that are neither derived nor named by another argument."""
    if request.columns is not None:
        return request.columns
    named = request.keys.union(inputs, *(spec.members for spec in request.static.values()))
    return {name: ColumnSpec(name) for name in schema.names if name not in named}
