"""Names of columns: finding the field of a name, and refusing reserved names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tensorstash.errors import SchemaError, unknown

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED = frozenset({"valid", "window", "entity", "anchor", "reset"})


def field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The field of that name; raise a `ColumnError` if there is none, a `SchemaError` if there are several."""
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise unknown(name, schema.names, where)
    if len(indices) > 1:
        raise SchemaError(f"Column names must be unique; {where} has {len(indices)} columns {name!r}. Rename them.")
    return schema.field(indices[0])


def check_name(name: str, what: str, source: object = None, argument: str = "columns") -> None:
    """Raise if a name is reserved for entries that batches and segments add."""
    if name in RESERVED or "." in name or name.startswith("__") or not name:
        raise SchemaError(
            f"The names {', '.join(sorted(RESERVED))}, names with a dot and names that begin with '__' are reserved; "
            f'{what} is named {name!r}. Give it another name: {argument}={{"new_name": {source or repr(name)}}}.'
        )


def check_for_polars(names: Iterable[str]) -> None:
    """Raise if polars cannot export a name to Arrow: it ends at a NUL there."""
    if ends := [name for name in names if "\0" in name]:
        raise SchemaError(f"Polars exports names without the character NUL; got {ends[0]!r}. Rename it.")


def prefixes(names: Collection[str]) -> set[str]:
    """The beginnings of dotted names: each may be a struct column."""
    return {".".join(parts[:k]) for parts in (name.split(".") for name in names) for k in range(1, len(parts))}
