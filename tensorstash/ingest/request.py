"""What `ts.load` or `ts.plan` was asked for: every argument checked and parsed once, before the source is looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tensorstash.columns.expression import Expression, Formula
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
    shard: tuple[int, int] | None = None  # only the entities of this shard, by its number, of so many
    table: "Request | None" = None  # the table that static columns are joined from
    argument: str = "columns"  # which argument of `ts.load` names the columns

    @property
    def keys(self) -> frozenset[str]:
        """The entity columns and the time column."""
        return frozenset((*entity_columns(self.entity), *([] if self.time is None else [self.time])))

    @property
    def named(self) -> frozenset[str]:
        """The source columns, and fields of them, that the arguments name; a filter may mention more."""
        specs = (*(self.columns or {}).values(), *self.static.values())
        plain = {str(member) for spec in specs for member in spec.members}.difference(self.formulas)
        inputs = {name for formula in self.formulas.values() for name in formula.inputs(self.time)}
        clauses = () if self.filter is None or self.filter.clauses is None else self.filter.clauses
        return self.keys.union(plain, inputs, (name for clause in clauses for name, *_ in clause))

    @property
    def wanted(self) -> Wanted:
        """The source columns that a load reads."""
        wanted = Wanted(None if self.columns is None else self.named | prefixes(self.named))
        return wanted if self.filter is None else self.filter.add_to(wanted)


def parse_request(
    *,
    source: Any,
    filesystem: Any,
    columns: Columns | None,
    static: Static | None,
    entity: str | Sequence[str] | None,
    time: str | None,
    dtype: torch.dtype | None,
    filter: Any,  # noqa: A002  as in ts.load
    schema: Any,
    shard: Any = None,
) -> Request:
    """The request that the arguments of `ts.load` stand for; wrong ones are refused."""
    if time is not None and not isinstance(time, str):
        raise TypeError(f"time= is the name of a column; got {time!r}.")
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

    return Request(
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
        shard=chosen,
        table=table,
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
        named(columns, "static")  # so that errors name the argument
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
    if isinstance(one, Expression) and isinstance(other, Expression):
        return bool(one.expr.meta.eq(other.expr))
    return one == other
