"""Names that stand for two things in a load, which are refused before anything is decoded."""

from tensorstash.columns.column import Column
from tensorstash.columns.names import field_of
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.types import is_text
from tensorstash.errors import SchemaError
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.plan_text import type_name


def check_names(choice: Choice) -> None:
    """Refuse a name of two columns, and the name of an entity column or of times for another column."""
    request, static = choice.request, (*choice.static, *choice.joined)
    if twice := {column.name for column in choice.columns} & {column.name for column in static}:
        raise SchemaError(
            f"A name stands for one column; {min(twice)!r} is in both columns= and static=. Leave it out of one, or "
            "give it another name there."
        )
    keys = {name: name for name in request.keys} | {request.known_name: request.known}
    for column in (*choice.columns, *choice.static):
        if column.name in keys and column.members != (keys[column.name],):
            argument = request.argument if column in choice.columns else "static"
            raise _of_key(column, f"made of {', '.join(map(repr, column.members))}", argument)
    if choice.table is not None:
        _check_table(choice, choice.table)


def _check_table(choice: Choice, table: Choice) -> None:
    """Refuse a table of static columns with the name of the times, or with entities of another type."""
    request, source = choice.request, table.source
    for column in table.columns:
        if column.name in (request.time, request.known_name):
            raise _of_key(column, f"a column of {source.label}", "static")
    for name in entity_columns(request.entity):
        here, there = (field_of(side.schema, name, side.label).type for side in (choice.source, source))
        if is_text(here) != is_text(there):
            raise SchemaError(
                f"Entity columns have one kind of values; {name!r} is {type_name(here)} in {choice.source.label} and "
                f"{type_name(there)} in {source.label}. Convert one of them."
            )


def _of_key(column: Column, origin: str, argument: str) -> SchemaError:
    return SchemaError(
        f"A column has the name of the entity, the time or the known time only if it holds these; {column.name!r} "
        f"is {origin}. Give it another name in {argument}=."
    )
