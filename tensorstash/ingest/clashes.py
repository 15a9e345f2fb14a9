"""Names that clash: of columns, of keys, and of a table of static columns."""

from collections.abc import Sequence

import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.columns.names import field_of
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.types import is_text
from tensorstash.errors import SchemaError
from tensorstash.ingest.plan_text import type_name
from tensorstash.ingest.request import Request
from tensorstash.sources.scan import Scan


def check_names(request: Request, columns: Sequence[Column], static: Sequence[Column], where: str) -> None:
    """Refuse a load without columns, a name used for two columns, and the name of a key used for another column."""
    if not columns:
        if request.argument == "static":
            raise ValueError(f"A table of static columns has a column beside the entity; {where} has none. Add one.")
        raise ValueError(f"A stash has at least one column; none of {where} was chosen. Name some in columns=.")
    _check_apart(columns, static)
    for column in (*columns, *static):
        if column.name in request.keys and column.members != (column.name,):
            argument = request.argument if column in columns else "static"
            raise SchemaError(
                f"A column has the name of the entity or time column only if it is that column; {column.name!r} is "
                f"{', '.join(column.members)}. Give it another name in {argument}=."
            )


def _check_apart(columns: Sequence[Column], static: Sequence[Column]) -> None:
    """Refuse a name used for two columns."""
    if twice := {column.name for column in columns} & {column.name for column in static}:
        raise SchemaError(
            f"A name stands for one column; {sorted(twice)[0]!r} is in both columns= and static=. Leave it out of one, "
            "or give it another name there."
        )


def check_table(
    request: Request, columns: Sequence[Column], scanned: Scan, static: Sequence[Column], table: Scan
) -> None:
    """Refuse a table of static columns that repeats the name of another column, or has entities of another type."""
    _check_apart(columns, static)
    for column in static:
        if column.name == request.time:
            raise SchemaError(
                f"A column has the name of the time column only if it is that column; {column.name!r} is one of "
                f"{table.label}. Give it another name in static=."
            )
    for name in entity_columns(request.entity):
        here, there = (field_of(one.schema, name, one.label).type for one in (scanned, table))
        if _is_text(here) != _is_text(there):
            raise SchemaError(
                f"Entity columns have one kind of values; {name!r} is {type_name(here)} in {scanned.label} and "
                f"{type_name(there)} in {table.label}. Convert one of them."
            )


def _is_text(arrow: pa.DataType) -> bool:
    return is_text(arrow.value_type if pa.types.is_dictionary(arrow) else arrow)
