"""The plan of a load: its columns and its memory, known before anything is decoded or allocated."""

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import torch

from tensorstash.columns.column import Column
from tensorstash.columns.names import field_of
from tensorstash.columns.resolve import entity_column, resolve, time_column
from tensorstash.columns.spec import Columns, ColumnSpec
from tensorstash.common.checks import path_of
from tensorstash.common.html import table
from tensorstash.errors import NoMemoryError, SchemaError, SegmentError, SourceError
from tensorstash.ingest.entities import of_shard
from tensorstash.ingest.like import entity_like, numbered_like
from tensorstash.ingest.memory import SORT_BYTES, check_columns
from tensorstash.ingest.plan_text import HEAD, NUMBERS, column_line, entity_lines, losses, type_name
from tensorstash.ingest.request import Duplicates, Request, Specs, Static, check_names, check_table, parse_request
from tensorstash.ingest.segment_key import argument_keys, check_share
from tensorstash.segments.directory import opened
from tensorstash.segments.format import MAX_HEADER, PAGE, pages
from tensorstash.segments.limits import directory_limit, disk_limit, memory_limits, tightest
from tensorstash.segments.on_disk import directory_of_file
from tensorstash.sources.derive import bound, check_utf8, fields_of
from tensorstash.sources.file import File
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.locate import find
from tensorstash.sources.rows import columns_of, filtered
from tensorstash.sources.scan import Range, Scan, with_derived
from tensorstash.sources.shapes import shaped
from tensorstash.sources.source import scan
from tensorstash.sources.storage import stored
from tensorstash.sources.streams import check_repeatable
from tensorstash.stash.display import aligned
from tensorstash.stash.stash import Stash

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
    free: int  # bytes of memory available now
    pieces: int  # row groups, record batches or slices of the source
    kept: int  # pieces in which the filter keeps rows
    notes: tuple[str, ...]  # differences between files that were unified, and casts that would fail
    types: Mapping[str, str] = field(default_factory=dict)  # the Arrow type of each source column
    skipped: tuple[str, ...] = ()  # source columns that are never decoded
    ranges: Mapping[str, Range] = field(default_factory=dict)  # statistics of them before the filter; of `ts.plan` only
    chosen_by: str = ""  # the arguments that leave rows out
    duplicates: bool = False  # whether an entity may have several rows of one time
    table: "Plan | None" = None  # the plan of the table of static columns, joined by entity
    keys: frozenset[str] = frozenset()  # source columns that come from the paths of the files

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
    def header_bytes(self) -> int:
        """Room for a header that is not known yet: each name occurs in it up to eight times, escaped up to twice."""
        named = [*self.stored, *self.static, *self.joined, *([self.entity] if self.entity else [])]
        names = [json.dumps(name) for column in named for name in (column.name, *column.members)]
        return 16_384 + 2048 * len(named) + sum(64 + 16 * len(name) for name in names)

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """A line of cells for each column, under the head `plan_text.HEAD`."""
        source = self.rows, self.types, self.ranges
        lines = [column_line(column, *source, self._role(column)) for column in self.columns]
        lines += [column_line(column, *source, "static") for column in self.static]
        if self.table:
            lines += [column_line(column, self.table.rows, self.table.types, {}, "static") for column in self.joined]
        lines += entity_lines(self.entity, self.types, self.ranges) if self.entity else []
        return lines + ([column_line(self.time, *source, "time")] if self.time else [])

    def _role(self, column: Column) -> str:
        """What is said of a column that comes from the paths of the files alone: it is the same in all rows of one."""
        return "partition key" if self.keys.issuperset(column.members) else ""

    def _repr_html_(self) -> str:
        caption, *others = html.escape(repr(self)).splitlines()
        notes = "".join(f"<p>{line}</p>" for line in others[len(self.lines) + 1 :])
        return f"<p><b>Plan</b>: {caption}</p>{table(HEAD, self.lines)}{notes}"

    def __repr__(self) -> str:
        upper = self.nbytes + sum(self.rows * column.row_bytes for column in self.static)
        upper += sum(self.table.rows * column.row_bytes for column in self.joined) if self.table else 0
        size = f"{self.nbytes / 1e6:,.1f}" + (f" to {upper / 1e6:,.1f}" if upper > self.nbytes else "")
        lines = [
            f"{self.source}: {self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free",
            aligned([HEAD, *self.lines], NUMBERS),
        ]
        if self.static or self.joined:
            lines.append("static: one value per entity; only a load counts the entities")
        lines.append(f"page tables: {self.page_tables / 1e6:,.1f} MB in each process")
        if self.kept != self.pieces:
            lines.append(f"{self.chosen_by}: keeps rows of {self.kept:,} of {self.pieces:,} row groups")
        if self.not_kept:
            lines.append(f"read, not kept: {', '.join(self.not_kept)}")
        lines.append(f"skipped: {', '.join(self.skipped) or 'nothing'}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def plan(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    shard: tuple[int, int] | None = None,
    like: Stash | None = None,
    duplicates: Duplicates = "error",
    filesystem: Any = None,
    share: str | bool | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Plan:
    """Plan what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    When printed, the plan also shows the type of each column in the source; its nulls, minimum and maximum, if Parquet
    files have statistics of them; the number of row groups that remain after a filter; and notes: differences between
    the files, and reasons for which a load will fail. With `share=`, these reasons include a wrong label, Python
    functions in expressions, and too little room in the directory of shared segments. With `file=`, the notes give the
    memory that sorting takes, and say if the disk has too little room.

    Only schemas and footers are read, with these exceptions: one column of Arrow files, because only their batches have
    the number of rows; the first batch of lists, for their length; CSV files and streams; the columns of a
    filter; and with `shard=` the entity columns. Wrong arguments raise the errors
    of `ts.load`.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> cost = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> cost.rows, cost.nbytes, cost.skipped
        (1000, 16384, ('z',))
    """
    request = parse_request(
        source,
        columns,
        entity=entity,
        time=time,
        static=static,
        dtype=dtype,
        filter=filter,
        shard=shard,
        like=like,
        duplicates=duplicates,
        filesystem=filesystem,
    )
    path = None if file is None else os.path.realpath(path_of(file, "file"))
    check_repeatable(source)
    surveyed = survey(request, find(source, filesystem), None)
    scanned, planned = surveyed.scanned, surveyed.planned
    keys = [column for column in (planned.entity, planned.time) if column]
    chosen = [*planned.columns, *planned.static, *keys]
    names = dict.fromkeys(member for column in chosen for member in column.members)
    ranges = {name: values for name in names if (values := scanned.range_of(name)) != Range()}
    notes = [note for column in chosen for note in losses(column, ranges)]
    if share is not None and share is not False:
        checks = (lambda: check_share(share, source), lambda: argument_keys(request), lambda: _check_memory(planned))
        for check in checks:
            notes += _refusal(f"share={share!r}", check)
    if path is not None:
        needed = f"{planned.rows * SORT_BYTES / 1e6:,.1f} MB of memory"
        notes.append(f"a load needs {needed} to sort the rows, unless they are grouped by entity and ordered by time")
        notes += _refusal("file=", lambda: _check_disk(planned, os.path.dirname(path)))
    return replace(planned, ranges=ranges, notes=(*planned.notes, *notes))


def _check_memory(planned: Plan) -> None:
    with opened() as shared:
        limits = [*memory_limits(), directory_limit(shared.fd, shared.path)]
        check_columns(planned.nbytes, planned.source, limits)


def _check_disk(planned: Plan, path: str) -> None:
    with directory_of_file(path) as directory:
        check_columns(planned.nbytes, planned.source, [disk_limit(directory.fd, path)], on_disk=True)


def _refusal(argument: str, check: Callable[[], object]) -> list[str]:
    """A note if the check fails, as it will in a load with the argument."""
    try:
        check()
    except (ValueError, SegmentError, SourceError, NoMemoryError) as error:
        return [f"a load with {argument} will be refused: {error}"]
    return []


@dataclass(frozen=True, slots=True)
class Survey:
    """A source that is ready to be read and its plan, and both for the table of static columns."""

    scanned: Scan
    planned: Plan
    table: "Survey | None" = None


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
    formulas = bound(request.formulas, request.time, scanned)
    derived = {column.field.name: column.inputs for column in (*fields, *formulas)}
    specs = _chosen_columns(request, scanned.schema, derived)
    members = {str(member) for spec in (*specs.values(), *request.static.values()) for member in spec.members}
    for name in (*request.keys, *sorted(members.difference(request.formulas))):
        field_of(scanned.schema, name, scanned.label)  # a wrong name is refused before the filter reads its columns
    rows, judged = _chosen_rows(request, scanned, progress)
    whole = shaped(with_derived(rows, formulas), members)
    planned = _planned(request, whole, specs, derived)
    types = {field.name: type_name(field.type) for field in (*whole.schema, *source.schema)}
    used = request.keys.union(members, judged, *derived.values())
    planned = replace(
        planned,
        skipped=tuple(name for name in whole.schema.names if name not in used),
        types={name: types[name] for name in whole.schema.names},
        table=None if table is None else table.planned,
        keys=source.keys,
    )
    if table is not None:
        check_table(request, planned.columns, whole, table.planned.columns, table.scanned)
    if planned.header_bytes > MAX_HEADER:
        raise SchemaError(
            f"The header of a stash has at most {MAX_HEADER / 1e6:,.0f} MB; for {len(planned.columns):,} columns of "
            f"{whole.label} it may need {planned.header_bytes / 1e6:,.0f} MB. Load fewer columns, or pack them: "
            'columns={"x": [...]}.'
        )
    return Survey(whole, planned, table)


def _chosen_columns(request: Request, schema: pa.Schema, derived: Inputs) -> Specs:
    """The requested columns; by default all source columns that are neither derived nor named by another argument."""
    if request.columns is not None:
        return request.columns
    named = request.keys.union(derived, *(spec.members for spec in request.static.values()))
    return {name: ColumnSpec(name) for name in schema.names if name not in named}


def _chosen_rows(request: Request, scanned: Scan, progress: bool | None) -> tuple[Scan, Sequence[str]]:
    """The rows of the filter and the shard, and the columns that the filter reads."""
    rows, judged = scanned, list[str]()
    if request.filter is not None:
        condition = request.filter.fitted(scanned.schema)
        judged = columns_of(condition, scanned.schema, scanned.label)
        flags = () if condition.formula is None else bound({"filter=": condition.formula}, request.time, scanned)
        if flags and flags[0].field.type != pa.bool_():
            raise SchemaError(
                f"filter= must be true or false for every row; {condition.formula!r} is {flags[0].field.type}. "
                "Compare it with a value."
            )
        rows = filtered(with_derived(scanned, flags), condition, ["filter="] if flags else judged, progress)
        rows = replace(rows, schema=scanned.schema)
    if request.shard is not None and request.entity is not None:
        rows = of_shard(rows, request.entity, request.shard, progress)
    return rows, judged


def _planned(request: Request, scanned: Scan, specs: Specs, derived: Inputs) -> Plan:
    schema, where, like = scanned.schema, scanned.label, request.like
    columns, static = (
        tuple(numbered_like(column, like) for column in resolve(schema, part, request.dtype, where, argument))
        for part, argument in ((specs, request.argument), (request.static, "static"))
    )
    check_names(request, columns, static, where)
    entity = None if request.entity is None else entity_column(schema, request.entity, where)
    return Plan(
        source=where,
        rows=scanned.rows,
        columns=columns,
        entity=None if entity is None else entity_like(entity, like, schema, where),
        time=None if request.time is None else time_column(schema, request.time, where),
        static=static,
        derived=derived,
        free=tightest(memory_limits()).free,
        pieces=scanned.pieces,
        kept=len(scanned.units),
        notes=scanned.notes,
        chosen_by=" and ".join(name for name in ("filter", "shard") if getattr(request, name) is not None),
        duplicates=request.duplicates,
    )
