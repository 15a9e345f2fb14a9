"""One schema for several files: different types are widened if that keeps all values."""

from collections.abc import Sequence

import pyarrow as pa

from tensorstash.columns.extensions import extension_of, is_opaque, periods_of
from tensorstash.columns.types import field_type, is_bfloat16, is_text, marks_bfloat16, value_type
from tensorstash.errors import SourceError
from tensorstash.sources.read import Wanted, check_unique


def unify(names: Sequence[str], schemas: Sequence[pa.Schema], wanted: Wanted) -> pa.Schema:
    """Merge the schemas of files, which have these names, into one."""
    files: dict[bytes, int] = {}  # the first file of each distinct schema, of which there are few
    for file, schema in enumerate(schemas):
        # the metadata of files differs between writers; the metadata of fields matters
        files.setdefault(schema.remove_metadata().serialize().to_pybytes(), file)
    kinds = [(names[file], schemas[file]) for file in files.values()]
    for where, schema in kinds:
        check_unique(schema.names, wanted, where)
    first = schemas[0].remove_metadata()
    if len(kinds) == 1:
        return first
    unified = {}
    for name in wanted.among(dict.fromkeys(name for _, schema in kinds for name in schema.names)):
        whole: pa.Field | None = None
        for where, schema in kinds:
            if name not in schema.names:
                raise _difference(f"{where} has no column {name!r}")
            field = schema.field(name)
            both = field if whole is None else wider(whole, field)
            if both is None:
                raise _difference(f"{where} has {name!r} as {field_type(field)}, not {field_type(whole)}")
            whole = both
        unified[name] = whole
    return pa.schema([unified.get(field.name, field) for field in first])


def _difference(what: str) -> SourceError:
    return SourceError(
        f"All files of a source need the same columns and types; {what}. Leave such columns out, or write all files "
        "with one schema."
    )


def wider(left: pa.Field, right: pa.Field) -> pa.Field | None:
    """A field that can hold every value of both; `None` if there is none."""
    if is_bfloat16(left) != is_bfloat16(right) or _meaning(left) != _meaning(right):
        return None
    if marks_bfloat16(left) != marks_bfloat16(right):
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


def _meaning(field: pa.Field) -> tuple[str, str] | None:
    """The extension type of a field whose stored values mean nothing without it."""
    return extension_of(field) if is_opaque(field) or periods_of(field) is not None else None
