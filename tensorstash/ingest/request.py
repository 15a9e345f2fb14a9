"""What `ts.load` or `ts.plan` was asked for: every argument checked and parsed once, before the source is looked at."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import torch

from tensorstash.columns.codec import Unknown
from tensorstash.columns.expression import Expression, Formula, is_expression, member_of
from tensorstash.columns.names import check_unicode, prefixes
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.spec import Columns, ColumnSpec, check_dtype, named
from tensorstash.common.calendar import Calendar
from tensorstash.common.checks import shown
from tensorstash.common.text import cut, type_text
from tensorstash.errors import SchemaError
from tensorstash.ingest.like import static_like
from tensorstash.sources.formats import FORMATS
from tensorstash.sources.read import Wanted
from tensorstash.sources.source import is_table
from tensorstash.stash.stash import Stash

if TYPE_CHECKING:
    from tensorstash.sources.filter import Filter

_LONGEST = 80  # most characters of the name of a formula

Specs = Mapping[str, ColumnSpec]
Duplicates = Literal["error", "keep"]
# a column or a polars expression
Known = Any
Like = Stash | str | os.PathLike[str]
# a duration, or the times that exist, as Arrow has them or in the unit of the times of a stash
StepOrTimes: TypeAlias = int | str | pa.ChunkedArray | Calendar | None
# static columns of the source, or a table with a row for each entity, or one and a choice of its columns
Static = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A source, and the parsed arguments of its load.

    In `columns` and `static` every formula is replaced by its name in `formulas`, as if it were a source column.
    """

    source: Any
    filesystem: Any = None
    columns: Specs | None = None  # `None`: all columns of the source that nothing else names
    static: Specs = field(default_factory=dict)
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    entity: str | tuple[str, ...] | None
    time: str | None = None
    known: str | None = None  # the column or formula that says when a row became known
    known_name: str | None = None  # what a stash calls it
    dtype: torch.dtype | None
    filter: "Filter | None" = None
    shard: tuple[int, int] | None  # (k, n): only the entities of shard k of n
    like: Stash | None  # the stash whose entities and codes keep their numbers
    of_like: frozenset[str] = frozenset()  # which of "columns" and "time" were left out, and are those of `like`
    carried: Specs = field(default_factory=dict)  # static columns of `like`, which the source need not have
    # the step of time, or the times that exist: given, or that of `like` if its times are taken over
    frequency: StepOrTimes = None
    unknown: Unknown  # what becomes of entities and texts that `like` lacks
    duplicates: bool = False  # whether an entity may have several rows of one time
    table: "Request | None" = None  # the table that static columns are joined from
    argument: str = "columns"  # which argument of `ts.load` names the columns

    @property
    def keys(self) -> frozenset[str]:
        """The entity columns, the time column, and the one of the known times if they are no formula."""
        times = [name for name in (self.time, self.known) if name is not None and name not in self.formulas]
        return frozenset((*entity_columns(self.entity), *times))

    @property
    def named(self) -> frozenset[str]:
        """The columns, and fields of them, that the arguments name; a filter may mention more."""
        inputs = [self.formulas[name].inputs(self.time) if name in self.formulas else (name,) for name in self.members]
        return self.keys.union(*inputs, () if self.filter is None else self.filter.named)

    @property
    def members(self) -> frozenset[str]:
        """The source columns and formulas that the arguments name beside the entity and the time."""
        specs = (*(self.columns or {}).values(), *self.static.values())
        known = () if self.known is None else (self.known,)
        return frozenset((*(str(member) for spec in specs for member in spec.members), *known))

    @property
    def sought(self) -> frozenset[str]:
        """Those that are named, and those that are read if the source has them."""
        return self.named.union(*(map(str, spec.members) for spec in self.carried.values()))

    @property
    def wanted(self) -> Wanted:
        """The source columns that a load reads."""
        mentions = "" if self.filter is None else self.filter.mentions
        return Wanted(None if self.columns is None else self.sought | prefixes(self.sought), mentions)


def check_time(time: object) -> str | None:
    """Check `time=`."""
    if time is not None and not isinstance(time, str):
        raise TypeError(f"time must be the name of a column, got {shown(time)}.")
    return time


def check_floating(dtype: torch.dtype | None) -> torch.dtype | None:
    """Check `dtype=` of a load."""
    check_dtype(dtype)
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype= casts the floating columns and must be floating; got {dtype}. Use ts.column(dtype=).")
    return dtype


def parse_filter(condition: Any) -> "Filter | None":
    """Parse `filter=`."""
    if condition is None:
        return None
    from tensorstash.sources.filter import parse  # here, because pyarrow's expressions are slow to import

    return parse(condition)


def with_columns(request: Request, columns: Columns | None, static: Static | None, known: Known | None) -> Request:
    """The request with the parsed arguments that name columns and formulas."""
    if request.shard is not None and request.entity is None:
        raise ValueError(f"A shard is of entities; got shard={request.shard} and no entity=. Name the entity column.")
    table = _table(static, request)
    formulas: dict[str, Formula] = {}
    known_member, known_name = (None, None) if known is None else _known(known, request.entity, request.time, formulas)

    keys = {"entity": entity_columns(request.entity), "time": (request.time,), "known": (known_member,)}
    for argument, names in keys.items():
        check_unicode(filter(None, names), f"{argument}=")

    def specs(given: Any, argument: str) -> Specs:
        found = {
            name: replace(spec, members=tuple(_name_of(member, request.time, formulas) for member in spec.members))
            for name, spec in named(given, argument)
        }
        check_unicode((*found, *(str(member) for spec in found.values() for member in spec.members)), f"{argument}=")
        return found

    chosen = None if columns is None else specs(columns, request.argument)
    is_whole = request.argument == "columns" and static is None
    of_like = static_like(request.like, request.dtype) if request.like is not None and is_whole else {}
    return replace(
        request,
        columns=chosen,
        static={} if static is None or table is not None else specs(static, "static"),
        formulas=formulas,
        known=known_member,
        known_name=known_name,
        table=table,
        carried={name: spec for name, spec in of_like.items() if name not in (chosen or {})},
    )


def _table(static: Any, request: Request) -> Request | None:
    """The request for static columns that come from a table of their own; `None` if they are columns of the source."""
    chooses = isinstance(static, tuple) and len(static) == 2
    table, columns = static if chooses else (static, None)
    if isinstance(table, (str, os.PathLike)):
        path = os.fspath(table)
        for frame in (one.frame.format(repr(path)) for one in FORMATS if path.lower().endswith(one.endings)):
            written = f"static=({frame}, {columns!r})" if chooses else f"static={frame}"
            raise TypeError(f"static= takes a file as its frame, not as its path, {path!r}. Write {written}.")
    if not is_table(table):
        return None
    if request.entity is None:
        raise ValueError(
            f"Static columns of a table are joined by the entity columns; got {type_text(table)} as static= and "
            "no entity=. Name them as entity=."
        )
    of_table = Request(
        source=table,
        entity=request.entity,
        dtype=request.dtype,
        shard=request.shard,
        like=request.like,
        unknown=request.unknown,
        argument="static",
    )
    return with_columns(of_table, columns, None, None)


def _known(
    known: Any, entity: str | Sequence[str] | None, time: str | None, formulas: dict[str, Formula]
) -> tuple[str, str]:
    """The source column or formula of `known=`, and the name of the known times in a stash."""
    if not isinstance(known, str) and not is_expression(known):
        raise TypeError(f"known must be the name of a column or a polars expression, got {shown(known)}.")
    if time is None:
        raise ValueError("A known time is the second time of a row, so known= needs time=. Name the time column.")
    source = member_of(known)
    member = _name_of(source, time, formulas)
    name = "known" if member in formulas else member
    # without an alias, polars calls an expression by its first column, whose values these times are not
    if isinstance(source, Expression) and source.alias is not None and source.alias not in source.columns:
        name = source.alias
    if name != member and name in (time, *entity_columns(entity)):
        raise SchemaError(
            f"The known times need a name of their own; {name!r} is the name of an entity or time column. Give them "
            "another: known=pl.col(...).alias(...)."
        )
    return member, name


def _name_of(member: str | Formula, time: str | None, formulas: dict[str, Formula]) -> str:
    """The name of a source column, or of a formula, which joins `formulas` under its text."""
    if isinstance(member, str):
        return member
    if isinstance(member, Expression) and member.is_column:
        return member.columns[0]
    text = cut(member.text(time), _LONGEST)
    names = chain([text], (f"{text} #{number}" for number in count(2)))
    name = next(name for name in names if name not in formulas or _same(formulas[name], member))
    formulas[name] = member
    return name


def _same(formula: Formula, other: Formula) -> bool:
    if isinstance(formula, Expression) and isinstance(other, Expression):
        return bool(formula.expr.meta.eq(other.expr))
    return formula == other
