"""Names of columns: the one field that a name stands for, and the names that are reserved."""

import pyarrow as pa

from tensorstash.errors import SchemaError, unknown

RESERVED = frozenset({"valid", "window", "entity", "anchor", "reset"})


def field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The one field of that name."""
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise unknown(name, schema.names, where)
    if len(indices) > 1:
        raise SchemaError(f"Column names must be unique; {where} has {len(indices)} columns {name!r}. Rename them.")
    return schema.field(indices[0])


def check_name(name: str, what: str, source: object = None, argument: str = "columns") -> None:
    """Refuse a name that batches or segments use for entries of their own."""
    if name in RESERVED or "." in name or name.startswith("__") or not name:
        raise SchemaError(
            f"The names {', '.join(sorted(RESERVED))}, names with a dot and names that begin with '__' are reserved; "
            f'{what} is named {name!r}. Give it another name: {argument}={{"new_name": {source or repr(name)}}}.'
        )
