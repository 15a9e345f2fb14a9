"""`like=`: entities and codes keep the numbers that they have in another stash."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from tensorstash.columns.codec import Ascending
from tensorstash.columns.column import Column
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.types import is_text
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.stash.header import names_checksum
from tensorstash.stash.stash import Stash


def check_like(like: object, entity: Any) -> Stash | None:
    """Raise unless `like` is a stash with the same number of entity columns."""
    if like is None:
        return None
    if not isinstance(like, Stash):
        raise TypeError(f"like= must be a stash, got {type_text(like)}.")
    if len(like.entity_names) != len(entity_columns(entity)):
        raise ValueError(
            f"Entities keep their numbers in like= if both have as many entity columns; like= has "
            f"{list(like.entity_names)}, and entity= names {list(entity_columns(entity))}. Name the same columns."
        )
    return like


def numbered_like(column: Column, like: Stash | None) -> Column:
    """The column, with the texts that keep their codes."""
    if like is None or not isinstance(column.codec, Ascending):
        return column
    if column.name not in {**like, **like.static} or like.about(column.name).kind != "category":
        return column
    texts = tuple(like.vocabulary(column.name))
    return replace(column, codec=Ascending(texts)) if all(isinstance(text, str) for text in texts[:1]) else column


def entity_like(column: Column, like: Stash | None, schema: pa.Schema, where: str) -> Column:
    """The entity column, with the entities that keep their numbers."""
    if like is None or not like.entities:
        return column
    first = like.entities[0] if column.shape else like.entities[:1]
    for member, value in zip(column.members, first):
        arrow = schema.field(member).type
        if is_text(arrow) != isinstance(value, str):
            raise SchemaError(
                f"Entity columns have one kind of values; {member!r} is {arrow} in {where}, and like= has {value!r} "
                "there. Convert the column."
            )
    return replace(column, codec=Ascending(tuple(like.entities)))


def key_of_like(like: Stash) -> list[tuple[str, int]]:
    """The checksums of the names that keep their numbers."""
    return [("", names_checksum(like)), *((name, names_checksum(like, name)) for name in {**like, **like.static})]
