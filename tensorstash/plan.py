"""What a load will take, before anything is decoded or allocated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tensorstash.errors import SchemaError
from tensorstash.limits import Limit, check_free, memory_limits, tightest
from tensorstash.schema import Column, Columns, entity_column, entity_columns, resolve, sources_of, time_column
from tensorstash.segment import pages
from tensorstash.sources import Scan, scan

_SORT_BYTES = 24  # per row: its entity, its place there before and after sorting, and the times once more


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The columns that a load will hold, and what they cost; `print` it."""

    source: str
    rows: int
    columns: tuple[Column, ...]
    entity: Column | None
    time: Column | None
    static: tuple[Column, ...]  # one value per entity
    skipped: tuple[str, ...]  # source columns that are never decoded
    free: int  # bytes of memory available now

    @property
    def stored(self) -> tuple[Column, ...]:
        """All tensors of the segment that have rows, in their order there: one item size after the other."""
        flat = sorted(self.columns, key=lambda c: (bool(c.shape), c.dtype.itemsize))
        return (*flat, self.time) if self.time else tuple(flat)

    @property
    def nbytes(self) -> int:
        """Bytes that the stash will hold, without static columns: how many entities there are is not known yet."""
        return sum(pages(self.rows * column.row_bytes) for column in self.stored)

    def __repr__(self) -> str:
        body = [_line(self.rows, column) for column in self.columns]
        for column in self.static:
            name, origin, kind, dtype, most = _line(self.rows, column)
            body.append((name, origin, f"static {kind}", dtype, f"<= {most}"))
        if self.entity:
            body += [(member, "", "entity", "", "") for member in self.entity.members]
        if self.time:
            time = _line(self.rows, self.time)
            body.append((self.time.members[0], "", f"time {_unit(self.time)}", "int64", time[4]))
        table = _table([("column", "from", "kind", "dtype", "MB"), *body])
        skipped = f"skipped: {', '.join(self.skipped)}" if self.skipped else "skipped: nothing"
        upper = self.nbytes + sum(self.rows * column.row_bytes for column in self.static)
        size = f"{self.nbytes / 1e6:,.1f}" + (f" to {upper / 1e6:,.1f}" if self.static else "")
        total = f"{self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free"
        if self.static:
            skipped = f"static: one value per entity; how many entities there are, only a load counts\n{skipped}"
        return f"{self.source}: {total}\n{table}\n{skipped}"


def _line(rows: int, column: Column) -> tuple[str, str, str, str, str]:
    origin = ", ".join(column.members) if column.members != (column.name,) else ""
    shape = "".join(f" x {size}" for size in column.shape)
    kind = f"{column.kind} {_unit(column)}".strip()
    megabytes = f"{rows * column.row_bytes / 1e6:,.1f}"
    return column.name, origin, kind, str(column.dtype).removeprefix("torch.") + shape, megabytes


def _unit(column: Column) -> str:
    return " ".join(part for part in (column.unit, column.zone) if part)


def _table(lines: list[tuple[str, ...]]) -> str:
    """Columns of text aligned to the left, the last, a number, to the right."""
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
) -> Plan:
    """Say what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    Only schemas and footers are read (of Arrow files one column too, because only their batches tell their rows). The
    arguments, and the errors for wrong ones, are those of `ts.load`.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> cost = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> cost.rows, cost.nbytes, cost.skipped
        (1000, 16384, ('z',))
    """
    return survey(Request(source, columns, entity, time, () if static is None else static, dtype))[1]


@dataclass(frozen=True, slots=True)
class Request:
    """What `load` or `plan` was asked for."""

    source: Any
    columns: Columns | None
    entity: str | Sequence[str] | None
    time: str | None
    static: Columns
    dtype: torch.dtype | None


def survey(request: Request) -> tuple[Scan, Plan]:
    """The source, looked at, and the plan for it."""
    scanned = scan(request.source, _wanted(request))
    return scanned, _plan(scanned, request)


def _wanted(request: Request) -> set[str] | None:
    """The source columns that a load touches; `None` for all."""
    if request.columns is None:
        return None
    keys = {*entity_columns(request.entity), *([] if request.time is None else [request.time])}
    return sources_of(request.columns) | sources_of(request.static, "static") | keys


def _plan(scanned: Scan, request: Request) -> Plan:
    entity, time, static, dtype = request.entity, request.time, request.static, request.dtype
    keys = {*entity_columns(entity), *([] if time is None else [time])}
    others = keys | sources_of(static, "static")
    chosen: Columns = (
        [name for name in scanned.schema.names if name not in others] if request.columns is None else request.columns
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
    used = keys.union(*(column.members for column in (*resolved, *constant)))
    return Plan(
        source=scanned.label,
        rows=scanned.rows,
        columns=resolved,
        entity=entity_column(scanned.schema, entity, scanned.label) if entity is not None else None,
        time=time_column(scanned.schema, time, scanned.label) if time is not None else None,
        static=constant,
        skipped=tuple(name for name in scanned.schema.names if name not in used),
        free=tightest(memory_limits()).free,
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
