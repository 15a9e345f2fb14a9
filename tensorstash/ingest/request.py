"""What `ts.load` or `ts.plan` was asked for: every argument checked and parsed once, before the source is looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tensorstash.columns.expression import Expression, Formula, PerEntity
from tensorstash.columns.layout import Layout, Lists, Regular, Wide, parse_layout
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.schema import Type, parse_schema
from tensorstash.columns.sharding import check_shard
from tensorstash.columns.spec import Columns, ColumnSpec, check_dtype, named
from tensorstash.sources.fields import prefixes
from tensorstash.sources.filter import Filter, parse
from tensorstash.sources.scan import Wanted
from tensorstash.sources.source import is_table

_LONGEST = 80  # characters of the name of a formula

Specs = Mapping[str, ColumnSpec]
# static columns of the source, or a table with a row for each entity, or one and a choice of its columns
Static = Columns | Any | tuple[Any, Columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A source, and what is wanted of it.

    In `columns` and `static` every formula is replaced by its name in `formulas`, as if it were a source column.
    """

    source: Any
    filesystem: Any
    columns: Specs | None  # `None`: all columns of the source that nothing else names
    static: Specs
    formulas: Mapping[str, Formula]
    entity: str | tuple[str, ...] | None
    time: str | None
    dtype: torch.dtype | None
    filter: Filter | None
    schema: Mapping[str, Type]
    layout: Layout | None = None
    shard: tuple[int, int] | None = None  # only the entities of this shard, by its number, of so many
    table: "Request | None" = None  # the table that static columns are joined from
    argument: str = "columns"  # which argument of `ts.load` names the columns

    @property
    def keys(self) -> frozenset[str]:
        """The entity columns, the time column, and what a layout makes them of."""
        own = frozenset((*entity_columns(self.entity), *([] if self.time is None else [self.time])))
        return own | self.layout.inputs if isinstance(self.layout, Lists) else own

    @property
    def named(self) -> frozenset[str]:
        """The columns, and fields of them, that the arguments name; a filter may mention more."""
        inputs = () if self.layout is None else self.layout.inputs
        return self.keys.union(self._inputs(self.columns or {}), self.named_by_static, self._filtered, inputs)

    @property
    def named_by_static(self) -> frozenset[str]:
        """The columns that static columns are made of."""
        return self._inputs(self.static)

    @property
    def named_by_rows(self) -> frozenset[str] | None:
        """The columns that everything but static columns is made of; `None`: all."""
        if self.columns is None:
            return None
        return self.keys.union(self._inputs(self.columns), self._filtered)

    @property
    def _filtered(self) -> frozenset[str]:
        clauses = () if self.filter is None or self.filter.clauses is None else self.filter.clauses
        return frozenset(name for clause in clauses for name, *_ in clause)

    def _inputs(self, specs: Specs) -> frozenset[str]:
        members = {member for spec in specs.values() for member in spec.members}
        computed = {name for member in members if member in self.formulas for name in self._formula(member)}
        return frozenset(str(member) for member in members if member not in self.formulas) | computed

    def _formula(self, name: Any) -> tuple[str, ...]:
        return self.formulas[name].inputs(self.time)

    @property
    def row_formulas(self) -> Mapping[str, Formula]:
        """The formulas whose values come from their own rows."""
        return {name: one for name, one in self.formulas.items() if not isinstance(one, PerEntity)}

    @property
    def entity_formulas(self) -> Mapping[str, PerEntity]:
        """The formulas whose values come from the rows of an entity."""
        return {name: one for name, one in self.formulas.items() if isinstance(one, PerEntity)}

    @property
    def computed(self) -> Mapping[str, str]:
        """The names of columns that one formula computes from their own rows, with the name of the formula."""
        specs = {**(self.columns or {}), **self.static}
        rows = self.row_formulas
        single = {name: str(spec.members[0]) for name, spec in specs.items() if len(spec.members) == 1}
        return {name: member for name, member in single.items() if member in rows}

    @property
    def wanted(self) -> Wanted:
        """The source columns that a load reads."""
        made = frozenset() if self.layout is None else self.layout.made
        every = self.columns is None or (isinstance(self.layout, Wide) and not self.layout.inputs)
        wanted = Wanted(None if every else (self.named | prefixes(self.named)), computed=frozenset(self.computed))
        wanted = wanted if self.filter is None else self.filter.add_to(wanted)
        return wanted if wanted.names is None else replace(wanted, names=wanted.names - made)


def parse_request(
    *,
    source: Any,
    filesystem: Any,
    columns: Columns | None,
    static: Static | None,
    entity: str | Sequence[str] | None,
    time: str | Regular | None,
    dtype: torch.dtype | None,
    filter: Any,  # noqa: A002  as in ts.load
    schema: Any,
    layout: str | None,
    shard: Any = None,
) -> Request:
    """The request that the arguments of `ts.load` stand for; wrong ones are refused."""
    asked, columns, entity, time = parse_layout(layout, columns, entity, time)
    check_dtype(dtype)
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype= casts the floating columns and must be floating; got {dtype}. Use ts.column(dtype=).")
    formulas: dict[str, Formula] = {}
    chosen = check_shard(shard)
    if chosen is not None and entity is None:
        raise ValueError(f"A shard is of entities; got shard={chosen} and no entity=. Name the entity column.")
    table = _table(static, entity, dtype, chosen)

    def specs(given: Any, argument: str) -> Specs:
        return {
            name: spec.with_members(lambda member: _name_of(member, time, formulas))
            for name, spec in named(given, argument)
        }

    request = Request(
        source=source,
        filesystem=filesystem,
        columns=None if columns is None else specs(columns, "columns"),
        static={} if static is None or table is not None else specs(static, "static"),
        formulas=formulas,
        entity=entity if entity is None or isinstance(entity, str) else entity_columns(entity),
        time=time,
        dtype=dtype,
        filter=parse(filter),
        schema=parse_schema(schema),
        layout=asked,
        shard=chosen,
        table=table,
    )
    _check_has_rows(request)
    return request


def _check_has_rows(request: Request) -> None:
    """Refuse formulas that read no column, if nothing else does: a table in memory has the rows of its columns."""
    if request.columns is not None and request.formulas and not request.named:
        raise ValueError(
            "A load reads at least one column of the source, which has the rows; "
            f"{next(iter(request.formulas.values()))!r} names none, and no other argument does. Name one in columns=, "
            "entity= or time=."
        )


def _table(
    static: Any, entity: str | Sequence[str] | None, dtype: torch.dtype | None, shard: tuple[int, int] | None
) -> Request | None:
    """The request for static columns that come from a table of their own; `None` if they are columns of the source."""
    with_choice = isinstance(static, tuple) and len(static) == 2 and is_table(static[0])
    table, columns = static if with_choice else (static, None)
    if not is_table(table):
        return None
    if entity is None:
        raise ValueError(
            f"Static columns of a table are joined by the entity columns; got a {type(table).__name__} as static= and "
            "no entity=. Name them as entity=."
        )
    if columns is not None:
        given = named(columns, "static")  # so that errors name the argument
        if wrong := [name for name, spec in given if any(isinstance(member, PerEntity) for member in spec.members)]:
            raise ValueError(
                "ts.per_entity computes columns over the rows of a series; a table of static columns has one row for "
                f"each entity, and {wrong[0]!r} is of such a table. Leave ts.per_entity out."
            )
    request = parse_request(
        source=table,
        filesystem=None,
        columns=columns,
        static=None,
        entity=entity,
        time=None,
        dtype=dtype,
        filter=None,
        schema=None,
        layout=None,
        shard=shard,
    )
    return replace(request, argument="static")


def _name_of(member: str | Formula, time: str | None, formulas: dict[str, Formula]) -> str:
    """The name of a source column, or of a formula, which joins `formulas` under its text."""
    if isinstance(member, str):
        return member
    if isinstance(member, Expression) and member.is_column:
        return member.columns[0]
    text = member.text(time)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    number, name = 1, text
    while name in formulas and not _same(formulas[name], member):
        number += 1
        name = f"{text} #{number}"
    formulas[name] = member
    return name


def _same(one: Formula, other: Formula) -> bool:
    if isinstance(one, PerEntity) and isinstance(other, PerEntity):
        return _same(one.expression, other.expression)
    if isinstance(one, Expression) and isinstance(other, Expression):
        return bool(one.expr.meta.eq(other.expr))
    return one == other
