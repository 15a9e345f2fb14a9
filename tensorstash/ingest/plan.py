"""What a load will take, before anything is decoded or allocated."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch

from tensorstash.columns.column import Column
from tensorstash.columns.expression import Formula
from tensorstash.columns.resolve import entity_column, entity_columns, resolve, time_column
from tensorstash.columns.spec import Columns, sources_of
from tensorstash.errors import SchemaError
from tensorstash.segments.format import PAGE, pages
from tensorstash.segments.limits import Limit, check_free, memory_limits, tightest
from tensorstash.sources.derive import bound, with_derived, without_formulas
from tensorstash.sources.file import File
from tensorstash.sources.filter import columns_of, filtered, parse
from tensorstash.sources.locate import find
from tensorstash.sources.scan import Range, Scan, Wanted
from tensorstash.sources.source import scan

_SORT_BYTES = 24  # per row: its entity, its place there before and after sorting, and the times once more
_WIDEST = 26  # characters of a minimum or maximum that are shown: a time with its zone


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The columns that a load will hold, and what they cost; `print` it."""

    source: str
    rows: int
    columns: tuple[Column, ...]
    entity: Column | None
    time: Column | None
    static: tuple[Column, ...]  # one value per entity
    derived: Mapping[str, tuple[str, ...]]  # computed columns, and the source columns that each is of
    skipped: tuple[str, ...]  # source columns that are never decoded
    free: int  # bytes of memory available now
    pieces: int  # row groups, record batches or slices of the source
    kept: int  # those of them that have rows which the filter keeps
    notes: tuple[str, ...]  # what differs between the files and is made alike, and casts that would fail
    types: Mapping[str, str]  # the Arrow type of each source column
    ranges: Mapping[str, Range]  # what statistics say of source columns, whatever a filter keeps; `load` looks at none

    @property
    def stored(self) -> tuple[Column, ...]:
        """All tensors of the segment that have rows, in their order there: one item size after the other."""
        flat = sorted(self.columns, key=lambda c: (bool(c.shape), c.dtype.itemsize))
        return (*flat, self.time) if self.time else tuple(flat)

    @property
    def nbytes(self) -> int:
        """Bytes that the stash will hold, without static columns: how many entities there are is not known yet."""
        return sum(pages(self.rows * column.row_bytes) for column in self.stored)

    @property
    def not_kept(self) -> tuple[str, ...]:
        """Source columns that are read only to compute others."""
        keys = [column for column in (self.entity, self.time) if column]
        kept = {member for column in (*self.columns, *self.static, *keys) for member in column.members}
        return tuple(dict.fromkeys(name for inputs in self.derived.values() for name in inputs if name not in kept))

    @property
    def page_tables(self) -> int:
        """Bytes that the system needs in each process that maps the stash, beside the memory itself."""
        return self.nbytes // PAGE * 8

    def __repr__(self) -> str:
        body = [self._line(column) for column in self.columns]
        for column in self.static:
            name, origin, source, kind, *rest, most = self._line(column)
            body.append((name, origin, source, f"static {kind}", *rest, f"<= {most}"))
        if self.entity:
            for member in self.entity.members:
                shown = _shown(self.ranges.get(member, Range()))
                body.append((member, "", self.types[member], "entity", "", *shown, ""))
        if self.time:
            _, _, source, _, dtype, *rest = self._line(self.time)
            body.append((self.time.members[0], "", source, f"time {_unit(self.time)}".rstrip(), dtype, *rest))
        table = _table([("column", "from", "source", "kind", "dtype", "nulls", "min", "max", "MB"), *body])
        upper = self.nbytes + sum(self.rows * column.row_bytes for column in self.static)
        size = f"{self.nbytes / 1e6:,.1f}" + (f" to {upper / 1e6:,.1f}" if self.static else "")
        total = f"{self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free"
        lines = [f"{self.source}: {total}", table]
        if self.static:
            lines.append("static: one value per entity; how many entities there are, only a load counts")
        lines.append(f"page tables: {self.page_tables / 1e6:,.1f} MB in each process")
        if self.kept != self.pieces:
            lines.append(f"filter: keeps rows of {self.kept:,} of {self.pieces:,} row groups")
        if self.not_kept:
            lines.append(f"read, not kept: {', '.join(self.not_kept)}")
        lines.append(f"skipped: {', '.join(self.skipped) or 'nothing'}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _line(self, column: Column) -> tuple[str, ...]:
        origin = ", ".join(column.members) if column.members != (column.name,) else ""
        source = ", ".join(dict.fromkeys(self.types[member] for member in column.members))
        shape = "".join(f" x {size}" for size in column.shape)
        kind = f"{column.kind} {_unit(column)}".strip()
        dtype = str(column.dtype).removeprefix("torch.") + shape
        about = _shown(_range(column, self.ranges))
        return column.name, origin, source, kind, dtype, *about, f"{self.rows * column.row_bytes / 1e6:,.1f}"


def _type_name(arrow: pa.DataType) -> str:
    return f"dictionary of {arrow.value_type}" if pa.types.is_dictionary(arrow) else str(arrow)


def _range(column: Column, ranges: Mapping[str, Range]) -> Range:
    """The range of all members together; of a mask only the nulls, which it tells apart, whatever the values are."""
    found = [ranges.get(member, Range()) for member in column.members]
    nulls = None if any(about.nulls is None for about in found) else sum(about.nulls or 0 for about in found)
    if column.mask or any(about.low is None for about in found):
        return Range(nulls)
    return Range(nulls, min(about.low for about in found), max(about.high for about in found))


def _shown(about: Range) -> tuple[str, str, str]:
    low, high = (_short(value) for value in (about.low, about.high))
    return "" if about.nulls is None else f"{about.nulls:,}", low, high


def _short(value: Any) -> str:
    text = "" if value is None else f"{value + 0.0:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _unit(column: Column) -> str:
    return " ".join(part for part in (column.unit, column.zone) if part)


def _table(lines: list[tuple[str, ...]]) -> str:
    """Columns of text aligned to the left, the last, a number, to the right; columns without a cell are left out."""
    lines = [*zip(*[cells for cells in zip(*lines) if any(cells[1:])])]
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(cells[:-1], widths)) + cells[-1].rjust(widths[-1] + 2)
        for cells in lines
    )


def plan(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    static: Columns | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    filesystem: Any = None,
) -> Plan:
    """Say what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    Printed, it also shows the type of each column in the source, its nulls, minimum and maximum as far as the
    statistics of Parquet files tell, how many row groups a filter leaves, and what will fail or was made alike.

    Only schemas and footers are read; of Arrow files one column too, because only their batches tell their rows, and
    the columns of a filter. The arguments, and the errors for wrong ones, are those of `ts.load`.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> cost = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> cost.rows, cost.nbytes, cost.skipped
        (1000, 16384, ('z',))
    """
    request = Request(source, columns, entity, time, () if static is None else static, dtype, filter, filesystem)
    scanned, planned = survey(request, find(source, filesystem), None)
    keys = [column for column in (planned.entity, planned.time) if column]
    columns_ = [*planned.columns, *planned.static, *keys]
    names = dict.fromkeys(member for column in columns_ for member in column.members)
    ranges = {name: about for name in names if (about := scanned.range_of(name)) != Range()}
    notes = [note for column in columns_ for note in _losses(column, ranges)]
    return replace(planned, ranges=ranges, notes=(*planned.notes, *notes))


def _losses(column: Column, ranges: Mapping[str, Range]) -> Iterator[str]:
    """A note for each member with a value that its column's type cannot hold."""
    for member in column.members:
        about = ranges.get(member, Range())
        for value in (about.low, about.high):
            if column.kind == "number" and isinstance(value, (int, float)) and not _holds(column.dtype, value):
                cannot = f"which {column.dtype} cannot hold: a load will refuse it. Widen dtype=."
                yield f"{member!r} has the value {value:g}, {cannot}"
                break


def _holds(dtype: torch.dtype, value: float) -> bool:
    if not math.isfinite(value) or dtype == torch.bool:
        return True
    if dtype.is_floating_point:
        return bool(torch.tensor(float(value), dtype=torch.float64).to(dtype).isfinite())
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


@dataclass(frozen=True, slots=True)
class Request:
    """What `load` or `plan` was asked for."""

    source: Any
    columns: Columns | None
    entity: str | Sequence[str] | None
    time: str | None
    static: Columns
    dtype: torch.dtype | None
    filter: Any
    filesystem: Any

    def __post_init__(self) -> None:
        if self.time is not None and not isinstance(self.time, str):
            raise TypeError(f"time= is the name of a column; got {self.time!r}.")


def survey(request: Request, files: Sequence[File] | None, progress: bool | None) -> tuple[Scan, Plan]:
    """The source, or its files, looked at, and the plan for it."""
    condition = parse(request.filter)
    formulas: dict[str, Formula] = {}
    static = without_formulas(request.static, "static", request.time, formulas)
    if request.columns is not None:
        request = replace(request, columns=without_formulas(request.columns, "columns", request.time, formulas))
    request = replace(request, static=static)
    wanted = _wanted(request, formulas)
    if condition is not None:
        wanted = condition.add_to(wanted)
    scanned = scan(request.source, files, wanted, condition, progress)
    derived = bound(formulas, request.time, scanned)
    inputs = {column.field.name: column.inputs for column in derived}
    planned = _plan(with_derived(scanned, derived), request, inputs)
    if condition is not None:
        names = columns_of(condition, scanned.schema, scanned.label)
        scanned = filtered(scanned, condition, names, progress)
        skipped = tuple(name for name in planned.skipped if name not in names)
        planned = replace(planned, rows=scanned.rows, skipped=skipped, kept=len(scanned.units))
    return with_derived(scanned, derived), planned


def _wanted(request: Request, formulas: Mapping[str, Formula]) -> Wanted:
    """The source columns that a load touches, besides those of the filter."""
    if request.columns is None:
        return Wanted(None)
    keys = {*entity_columns(request.entity), *([] if request.time is None else [request.time])}
    inputs = {name for formula in formulas.values() for name in formula.inputs(request.time)}
    plain = (sources_of(request.columns) | sources_of(request.static, "static")).difference(formulas)
    return Wanted(frozenset(plain | inputs | keys))


def _plan(scanned: Scan, request: Request, derived: Mapping[str, tuple[str, ...]]) -> Plan:
    entity, time, static, dtype = request.entity, request.time, request.static, request.dtype
    keys = {*entity_columns(entity), *([] if time is None else [time])}
    others = keys | sources_of(static, "static")
    chosen: Columns = (
        [name for name in scanned.schema.names if name not in others and name not in derived]
        if request.columns is None
        else request.columns
    )
    resolved = resolve(scanned.schema, chosen, dtype, scanned.label)
    constant = resolve(scanned.schema, static, dtype, scanned.label, "static")
    if not resolved:
        raise ValueError(f"A stash has at least one column; none of {scanned.label} was chosen. Name some in columns=.")
    if twice := {column.name for column in resolved} & {column.name for column in constant}:
        raise SchemaError(
            f"A name stands for one column; {sorted(twice)[0]!r} is in both columns= and static=. Leave it out of one, "
            "or give it another name there."
        )
    for column in (*resolved, *constant):
        if column.name in keys and column.members != (column.name,):
            argument = "columns" if column in resolved else "static"
            raise SchemaError(
                f"A column has the name of the entity or time column only if it is that column; {column.name!r} is "
                f"{', '.join(column.members)}. Give it another name in {argument}=."
            )
    used = keys.union(*(column.members for column in (*resolved, *constant)), *derived.values())
    return Plan(
        source=scanned.label,
        rows=scanned.rows,
        columns=resolved,
        entity=entity_column(scanned.schema, entity, scanned.label) if entity is not None else None,
        time=time_column(scanned.schema, time, scanned.label) if time is not None else None,
        static=constant,
        derived=derived,
        skipped=tuple(name for name in scanned.schema.names if name not in used),
        free=tightest(memory_limits()).free,
        pieces=scanned.pieces,
        kept=len(scanned.units),
        notes=scanned.notes,
        types={field.name: _type_name(field.type) for field in scanned.schema},
        ranges={},
    )


def check_memory(planned: Plan, limits: Sequence[Limit]) -> None:
    """Refuse before anything is allocated."""
    check_free(
        planned.nbytes,
        limits,
        "A stash must fit into free memory",
        planned.source,
        "Load fewer columns, or a narrower dtype; print(ts.plan(...)) shows what each costs.",
    )


def check_static(planned: Plan, entities: int) -> None:
    """Refuse static columns that do not fit; how many values they have is known only when the keys have been read."""
    # while they are gathered there is a second copy of them, and the row of each value
    check_free(
        entities * sum(2 * column.row_bytes + 8 for column in planned.static),
        memory_limits(),
        f"Static columns take one value per entity, and there are {entities:,} entities",
        planned.source,
        "Leave some out of static=.",
    )


def check_sorting(planned: Plan) -> None:
    """Refuse to sort what cannot be sorted in memory; that it has to be is known only when the keys have been read."""
    check_free(
        planned.rows * _SORT_BYTES,
        memory_limits(),
        "Rows that are not grouped by entity and ordered by time are sorted in memory",
        planned.source,
        "Sort the source, or load fewer columns.",
    )
