"""Names of columns: finding the field of a name, and refusing reserved names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tensorstash.common.checks import shown
from tensorstash.errors import SchemaError, unknown

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED = frozenset({"valid", "window", "entity", "anchor", "reset"})


def field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The field with this name. Raises `ColumnError` if there is none, `SchemaError` if there are several."""
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise unknown(name, schema.names, where)
    if len(indices) > 1:
        raise SchemaError(f"Column names must be unique; {where} has {len(indices)} columns {name!r}. Rename them.")
    return schema.field(indices[0])


def check_name(name: str, what: str, argument: str, source: object = None) -> None:
    """Raise if a name is reserved for entries of batches and segments."""
    if name in RESERVED or "." in name or name.startswith("__") or not name:
        raise SchemaError(
            f"The names {', '.join(sorted(RESERVED))}, names with a dot and names that begin with '__' are reserved; "
            f'{what} is named {name!r}. Give it another name: {argument}={{"new_name": {source or repr(name)}}}.'
        )


def check_unicode(names: Iterable[str], where: str) -> None:
    """Raise if a name has half a pair of surrogates, which is no text in UTF-8."""
    if wrong := [name for name in names if not name.isascii() and re.search(r"[\ud800-\udfff]", name)]:
        raise SchemaError(f"Column names must be valid Unicode; {where} has {wrong[0]!r}. Rename it.")


def check_for_polars(names: Iterable[str]) -> None:
    """Raise if a name contains NUL, where polars would cut it when exporting to Arrow."""
    if ends := [name for name in names if "\0" in name]:
        raise SchemaError(f"Names of polars columns must not contain NUL, got {ends[0]!r}. Rename the column.")


def prefixes(names: Collection[str]) -> set[str]:
    """All prefixes of dotted names, each of which may be a struct column."""
    return {".".join(parts[:k]) for parts in (name.split(".") for name in names) for k in range(1, len(parts))}


def check_key(key: object) -> None:
    """Raise `TypeError` for an object that cannot be a name, such as a list or a slice."""
    try:
        hash(key)
        is_name = not isinstance(key, (slice, list, tuple))
    except TypeError:  # also of objects that say that they have a hash, as expressions do
        is_name = False
    if not is_name:
        raise TypeError(
            f"stash[name] is one column, got {shown(key)}. Take rows of its tensor: stash[name][start:stop]. Load "
            "columns that you use together as one: columns={'name': [...]}."
        )
