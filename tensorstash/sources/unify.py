"""One schema for several files: different types are widened if that keeps all values."""

from collections.abc import Sequence
from operator import itemgetter

import pyarrow as pa

from tensorstash.columns.extensions import extension_of, is_opaque, periods_of
from tensorstash.columns.names import field_of
from tensorstash.columns.types import field_type, is_bfloat16, is_text, value_type
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.derive import paths_in
from tensorstash.sources.read import Wanted

_MOST_SHOWN = 10


def unify(names: Sequence[str], schemas: Sequence[pa.Schema], wanted: Wanted) -> tuple[pa.Schema, tuple[str, ...]]:
    """Merge the schemas of files into one, with notes on widened columns; one error lists all differences."""
    files: dict[bytes, list[int]] = {}  # the files of each distinct schema, of which there are few
    for file, schema in enumerate(schemas):
        # the metadata of files differs between writers; the metadata of fields matters
        key = schema.remove_metadata().serialize().to_pybytes() if len(schemas) > 1 else b""
        files.setdefault(key, []).append(file)
    kinds = [(schemas[which[0]], which) for which in files.values()]
    first = schemas[0].remove_metadata()
    if len(kinds) == 1 and len({*first.names}) == len(first):
        return first, ()
    unified, differences, notes = dict[str, pa.Field](), list[tuple[int, str]](), list[str]()
    for name in wanted.among(dict.fromkeys(name for schema, _ in kinds for name in schema.names)):
        fields = [field_of(schema, name, names[which[0]]) if name in schema.names else None for schema, which in kinds]
        found = [field for field in fields if field is not None]
        whole = found[0]
        for field, (_, which) in zip(fields, kinds):
            if field is None:
                why = f"has no column {name!r}"
            elif (wide := wider(whole, field)) is None:
                why = f"has {name!r} as {field_type(field)}, not {field_type(whole)}"
            else:
                whole = wide
                continue
            differences += [(file, f"{names[file]} {why}") for file in which]
        unified[name] = whole
        # the fields of structs are columns too, behind columns of their names
        for path in wanted.among(path for path in paths_in(whole) if path not in first.names):
            lacking = (which for field, (_, which) in zip(fields, kinds) if field and path not in paths_in(field))
            differences += [(file, f"{names[file]} has no column {path!r}") for which in lacking for file in which]
        types = dict.fromkeys(map(field_type, found))
        if len(types) > 1 and not is_text(whole.type):
            notes.append(f"{name!r} is read as {whole.type}: the files have it as {', '.join(types)}")
    if differences:
        shown = "; ".join(text for _, text in sorted(differences, key=itemgetter(0))[:_MOST_SHOWN])
        more = f"; and {len(differences) - _MOST_SHOWN} more" if len(differences) > _MOST_SHOWN else ""
        raise SourceError(
            f"All files of a source need the same columns and types: {shown}{more}. Leave such columns out, or write "
            "all files with one schema."
        )
    return pa.schema([unified.get(field.name, field) for field in first]), tuple(notes)


def wider(left: pa.Field, right: pa.Field) -> pa.Field | None:
    """A field that can hold every value of both; `None` if there is none."""
    if _meaning(left) != _meaning(right):
        return None
    if is_bfloat16(left) != is_bfloat16(right):
        left = left.remove_metadata()  # plain floats would be rounded
    if left.type == right.type or (is_text(left.type) and is_text(right.type)):
        return left
    types = [value_type(field.type) for field in (left, right)]
    try:
        both = pa.unify_schemas([pa.schema({"": arrow}) for arrow in types], promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    refused = (
        pa.types.is_int64(both) and pa.uint64() in types,  # unsigned integers above 2**63 do not fit
        pa.types.is_floating(both) and any(map(pa.types.is_decimal, types)),  # decimals would be rounded
        pa.types.is_list(both) and all(map(pa.types.is_fixed_size_list, types)),  # the lists have different lengths
    )
    return None if any(refused) else left.with_type(both)


def widened(array: pa.Array, field: pa.Field, place: str) -> pa.Array:
    """The values of a column in a file, in the type that all files share; texts may stay in any type of texts."""
    if array.type == field.type or (is_text(array.type) and is_text(field.type)):
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"A column needs one type for the values of all files; {field.name!r} is {array.type} in {place}, which "
            f"does not fit into {field.type}: {error}. Write all files with one type."
        ) from error


def _meaning(field: pa.Field) -> tuple[str, str] | None:
    """The extension type of a field whose stored values mean nothing without it."""
    return extension_of(field) if is_opaque(field) or periods_of(field) is not None else None
