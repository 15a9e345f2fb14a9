"""Fields of struct columns by dotted path: "wind.speed" is the field "speed" of the column "wind"."""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.errors import SchemaError, unknown
from tensorstash.sources.derive import Derived
from tensorstash.sources.pyarrow_texts import may_mention
from tensorstash.sources.scan import Scan


def prefixes(names: Collection[str]) -> set[str]:
    """The columns of which the names may be fields."""
    return {".".join(parts[:k]) for parts in (name.split(".") for name in names) for k in range(1, len(parts))}


def fields_of(scanned: Scan, names: Collection[str], mentions: str) -> tuple[Derived, ...]:
    """The fields that are named, or that the printed expression `mentions` may name; a column has precedence."""
    schema = scanned.schema
    mentioned = [] if not mentions else [path for path in _paths(schema) if may_mention(mentions, path)]
    wanted = dict.fromkeys([*sorted(name for name in names if "." in name), *mentioned])
    found = (_field_of(scanned, name) for name in wanted if name not in schema.names)
    return tuple(one for one in found if one is not None)


def _field_of(scanned: Scan, name: str) -> Derived | None:
    """The field of a path; `None` if it does not begin with the name of a struct column."""
    schema = scanned.schema
    root = next((one for one in schema.names if name.startswith(f"{one}.") and _is_struct(schema, one)), None)
    if root is None:
        return None
    field = schema.field(root)
    path = _path(field.type, name[len(root) + 1 :])
    if path is None:
        raise unknown(name, _paths(pa.schema([field])), scanned.label)
    for index in path:
        arrow, field = field.type, field.type.field(index)
        if len(arrow.get_all_field_indices(field.name)) > 1:
            raise SchemaError(
                f"Fields of a column have names of their own; {root!r} of {scanned.label} has two {field.name!r}. "
                "Rename one."
            )
    return Derived(field.with_name(name), (root,), lambda arrays, _: pc.struct_field(arrays[0], path))


def _is_struct(schema: pa.Schema, name: str) -> bool:
    return len(schema.get_all_field_indices(name)) == 1 and pa.types.is_struct(schema.field(name).type)


def _path(arrow: pa.DataType, rest: str) -> list[int] | None:
    """The index of each step of a path; a name may hold dots itself."""
    if not pa.types.is_struct(arrow):
        return None
    for index in range(arrow.num_fields):
        field = arrow.field(index)
        if field.name == rest:
            return [index]
        if rest.startswith(f"{field.name}.") and (more := _path(field.type, rest[len(field.name) + 1 :])) is not None:
            return [index, *more]
    return None


def _paths(fields: Sequence[pa.Field] | pa.Schema, before: str = "") -> Iterator[str]:
    """The paths of all fields of struct columns."""
    for field in fields:
        if before:
            yield before + field.name
        if pa.types.is_struct(field.type):
            inner = [field.type.field(k) for k in range(field.type.num_fields)]
            yield from _paths(inner, f"{before}{field.name}.")
