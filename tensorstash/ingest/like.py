"""`like=`: arguments that are left out, and the numbers of entities and codes, are those of another stash."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import torch

from tensorstash.columns.codec import Ascending, Codec, Given, Unknown
from tensorstash.columns.column import Column
from tensorstash.columns.expression import Formula, restored
from tensorstash.columns.name_list import Names, Texts
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.spec import ColumnSpec
from tensorstash.columns.time_fields import Moment
from tensorstash.columns.types import is_text
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.stash.open import open_stash
from tensorstash.stash.stash import Stash


def check_like(like: object) -> Stash | None:
    """The stash, which may be given as the path of a saved one; raise for anything else."""
    if like is None or isinstance(like, Stash):
        return like
    if isinstance(like, (str, os.PathLike)):
        return open_stash(like)
    raise TypeError(f"like= must be a stash, or the path of a saved one, got {type_text(like)}.")


def keys_like(like: Stash | None, entity: Any, time: Any, known: Any) -> tuple[Any, Any, Any]:
    """The arguments of these names, of `like` where they are left out; raise for another number of entity columns."""
    if like is None:
        return entity, time, known
    entity = like.info.entity if entity is None else entity
    if len(like.entity_names) != len(entity_columns(entity)):
        raise ValueError(
            f"Entities keep their numbers in like= if both have as many entity columns; like= has "
            f"{list(like.entity_names)}, and entity= names {list(entity_columns(entity))}. Name the same columns."
        )
    if time is None and known is None and like.info.known is not None:
        text, known = like.info.known.expression, like.info.known.source
        known = known if text is None else restored(text, known).expr.alias(known)
    return entity, like.time_name if time is None else time, known


def columns_like(like: Stash, dtype: torch.dtype | None) -> dict[str, ColumnSpec]:
    """The columns of `like` as `columns=` of another load; floating ones in `dtype`, if given."""
    expressions = dict(like.info.expressions)

    def member(name: str) -> str | Formula:
        return restored(expressions[name], name) if name in expressions else name

    specs = {}
    for about in like.info.columns:
        if about.is_scaled:
            raise ValueError(
                f"A scaled column does not say how its source is loaded; {about.name!r} of like= is scaled. Take the "
                "stash from which it was made, or give columns=."
            )
        moments: tuple[str | Formula, ...] = tuple(Moment(field, form) for field, form in about.calendar)
        spec = _spec_like(about, moments or tuple(map(member, about.members)), like, dtype)
        specs[about.name] = replace(spec, packed=spec.packed or bool(moments and about.shape))
    return specs


def static_like(like: Stash, dtype: torch.dtype | None) -> dict[str, ColumnSpec]:
    """The static columns of `like`, of columns that another source may have; floating ones in `dtype`, if given."""
    return {about.name: _spec_like(about, about.members, like, dtype) for about in like.info.static}


def _spec_like(about: Column, members: tuple[str | Formula, ...], like: Stash, dtype: torch.dtype | None) -> ColumnSpec:
    kept = dtype if dtype is not None and about.dtype.is_floating_point else about.dtype
    return ColumnSpec(
        members,
        packed=about.packed,
        dtype=kept if about.kind == "number" and not about.is_validity else None,
        fill=about.fill,
        codec=codec_like(about, like),
        empty=about.empty,
        calendar=about.calendar,
    )


def codec_like(about: Column, like: Stash) -> Codec:
    """How the values of a column were stored when it was loaded; a stash has a given vocabulary beside its codes."""
    return about.codec if about.unknown is None else Given(like.names(about.name))


def check_taken_over(
    columns: Sequence[Column], times: Sequence[Column], like: Stash, where: str, *, casts: bool
) -> None:
    """Raise if columns or times that are taken over from `like` are not what they are there.

    `casts` says whether the load gives floating columns a type of its own.
    """
    settings = ("kind", "shape", "unit", "zone", "dtype")
    both: list[tuple[str, str, Column, Any]] = [
        *((column.name, what, column, like.about(column.name)) for column in columns for what in settings),
        *((column.members[0], what, column, like.clock) for column in times for what in ("unit", "zone")),
    ]
    for name, what, column, about in both:
        here, there = getattr(column, what), getattr(about, what)
        if here != there and not (what == "dtype" and casts and there.is_floating_point):
            raise SchemaError(
                f"What like= names is the same in both; the {what} of {name!r} is {here} in {where}, and {there} "
                "in like=. Convert it, or give columns= and time= yourself."
            )


def is_as_in(like: Stash, column: Column) -> bool:
    """Whether `like` has a static column of this name whose values mean the same; their type may be another."""
    if column.name not in like.static:
        return False
    about, given = like.about(column.name), column.given_vocabulary
    traits = ("kind", "shape", "unit", "zone", "is_validity", "buckets", "is_scaled")
    if any(getattr(column, trait) != getattr(about, trait) for trait in traits):
        return False
    if given is None or about.unknown is None:  # else a code behind the vocabulary would stand for a name
        return given is None and about.unknown is None
    names = like.names(column.name)
    return given is names or [*given] == [*names]


def column_like(
    column: Column, spec: ColumnSpec, like: Stash | None, dtype: torch.dtype | None, unknown: Unknown
) -> Column:
    """The column, with the texts that keep their codes, or the floating type that nothing else chooses."""
    if like is None or column.name not in {*like, *like.static}:
        return column
    about = like.about(column.name)
    if column.dtype.is_floating_point and about.dtype.is_floating_point and dtype is spec.dtype is None:
        return replace(column, dtype=about.dtype, digits=False)
    if isinstance(column.codec, Ascending) and about.kind == "category":
        known = like.names(column.name)
        if isinstance(known.parts[0], Texts):
            return replace(column, codec=Ascending(known, unknown))
    return column


def entity_like(column: Column, like: Stash | None, schema: pa.Schema, where: str) -> Column:
    """The entity column, with the entities that keep their numbers."""
    known = None if like is None else names_like(like, column, schema, where)
    return replace(column, codec=Ascending(known)) if known else column


def names_like(like: Stash, column: Column, schema: pa.Schema, where: str) -> Names:
    """The entities of `like`, as those of the entity column; raise if they have another kind of values."""
    known = like.names()
    if known.are_tuples != bool(column.shape):  # of one column
        known = Names(known.parts, are_tuples=not known.are_tuples)
    for member, part in zip(column.members, known.parts if known else ()):  # without entities nothing tells the kind
        arrow = schema.field(member).type
        if is_text(arrow) != isinstance(part, Texts):
            raise SchemaError(
                f"Entity columns have one kind of values; {member!r} is {arrow} in {where}, and like= has "
                f"{part.item(0)!r} there. Convert the column."
            )
    return known
