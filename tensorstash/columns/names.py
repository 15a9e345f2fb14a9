"""Names of columns: finding the field of a name, and refusing reserved names."""

import pyarrow as pa

from tensorstash.errors import SchemaError, unknown

RESERVED = frozenset({"valid", "window", "entity", "anchor", "reset"})


def field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The field of that name; a `ColumnError` if there is none, a `SchemaError` if there are several."""
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise unknown(name, schema.names, where)
    if len(indices) > 1:
        raise SchemaError(f"Column names must be unique; {where} has {len(indices)} columns {name!r}. Rename them.")
    return schema.field(indices[0])


def check_name(name: str, what: str, source: object = None, argument: str = "columns") -> None:
    """Refuse the names of entries that batches and segments add."""
    if name in RESERVED or "." in name or name.startswith("__") or not name:
        raise SchemaError(
            f"The names {', '.join(sorted(RESERVED))}, names with a dot and names that begin with '__' are reserved; "
            f'{what} is named {name!r}. Give it another name: {argument}={{"new_name": {source or repr(name)}}}.'
        )
