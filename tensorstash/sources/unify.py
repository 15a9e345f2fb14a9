"""One schema for several files: types that differ are widened if values allow it and noted, else refused."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from tensorstash.columns.types import is_bfloat16, is_text
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.scan import Wanted

_UNITS = ("s", "ms", "us", "ns")
_MOST_SHOWN = 10


def unify(names: Sequence[str], schemas: Sequence[pa.Schema], wanted: Wanted) -> tuple[pa.Schema, tuple[str, ...]]:
    """Merge the schemas of files into one, with notes on what was widened; one error lists all differences."""
    files: dict[bytes, list[int]] = {}  # those of each distinct schema: many files have few
    for file, schema in enumerate(schemas):
        # the metadata of a file differs by writer; that of fields matters
        files.setdefault(schema.remove_metadata().serialize().to_pybytes(), []).append(file)
    kinds = [(schemas[which[0]], which) for which in files.values()]
    for schema, which in kinds:
        _check_names(schema, names[which[0]], wanted)
    first = schemas[0].remove_metadata()
    if len(kinds) == 1:
        return first, ()
    unified = {field.name: field for field in first if first.names.count(field.name) == 1}
    differences, notes = [], []
    for name in wanted.among(dict.fromkeys(name for schema, _ in kinds for name in schema.names)):
        having = [(schema.field(name), which) for schema, which in kinds if name in schema.names]
        lacking = [file for schema, which in kinds if name not in schema.names for file in which]
        differences += [(file, f"{names[file]} has no column {name!r}") for file in lacking]
        whole = having[0][0]
        for field, which in having:
            if (wide := wider(whole, field)) is not None:
                whole = wide
            else:
                why = f"has {name!r} as {_type_name(field)}, not {_type_name(whole)}"
                differences += [(file, f"{names[file]} {why}") for file in which]
        unified[name] = whole
        notes += _notes(name, having, whole)
    if differences:
        shown = "; ".join(text for _, text in sorted(differences, key=itemgetter(0))[:_MOST_SHOWN])
        more = f"; and {len(differences) - _MOST_SHOWN} more" if len(differences) > _MOST_SHOWN else ""
        raise SourceError(
            f"All files of a source need the same columns and types: {shown}{more}. Leave such columns out, or write "
            "all files with one schema."
        )
    return pa.schema([unified.get(field.name, field) for field in first]), tuple(notes)


def _check_names(schema: pa.Schema, where: str, wanted: Wanted) -> None:
    counts = Counter(schema.names)
    for name in wanted.among(counts):
        if counts[name] > 1:
            raise SchemaError(f"Column names must be unique; {where} has {counts[name]} columns {name!r}. Rename them.")


def _type_name(field: pa.Field) -> str:
    return "bfloat16" if is_bfloat16(field) else str(field.type)


def _notes(name: str, having: Sequence[tuple[pa.Field, Sequence[int]]], whole: pa.Field) -> list[str]:
    counts = Counter[str]()
    for field, which in having:
        counts[_type_name(field)] += len(which)
    if len(counts) < 2 or is_text(whole.type):
        return []
    shares = ", ".join(f"{kind} in {count:,} files" for kind, count in counts.items())
    return [f"{name!r} is read as {whole.type}: {shares}"]


def wider(left: pa.Field, right: pa.Field) -> pa.Field | None:
    """A field that holds every value of both, or `None` if their meanings differ."""
    if is_bfloat16(left) != is_bfloat16(right):
        return None
    wide = _wider_type(left.type, right.type)
    return None if wide is None else left.with_type(wide)


def _wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or (is_text(left) and is_text(right)) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    left, right = (arrow.value_type if pa.types.is_dictionary(arrow) else arrow for arrow in (left, right))
    if _is_number(left) and _is_number(right):
        wide = pa.from_numpy_dtype(np.promote_types(left.to_pandas_dtype(), right.to_pandas_dtype()))
        # int64 and uint64 would give float64; integers read as floats are checked to be exact when they are decoded
        are_integers = pa.types.is_integer(left) and pa.types.is_integer(right)
        return None if are_integers and not pa.types.is_integer(wide) else wide
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and left.tz == right.tz:
        return left if _UNITS.index(left.unit) > _UNITS.index(right.unit) else right
    if pa.types.is_fixed_size_list(left) and pa.types.is_fixed_size_list(right) and left.list_size == right.list_size:
        item = _wider_type(left.value_type, right.value_type)
        return None if item is None else pa.list_(item, left.list_size)
    return left if left == right else None


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow))
