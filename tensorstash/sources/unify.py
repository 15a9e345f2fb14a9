"""One schema for several files: types that differ are widened if values allow it and noted, else refused."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tensorstash.columns.types import is_bfloat16, is_text
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.scan import Wanted

_UNITS = ("s", "ms", "us", "ns")
_MOST_SHOWN = 10


def unify(names: Sequence[str], schemas: Sequence[pa.Schema], wanted: Wanted) -> tuple[pa.Schema, tuple[str, ...]]:
    """Merge the schemas of files into one, with notes on what was widened; one error lists all differences."""
    kinds, kind_of = _distinct(schemas)
    for kind, schema in enumerate(kinds):
        _check_names(schema, names[kind_of.index(kind)], wanted)
    first = kinds[0]
    if len(kinds) == 1:
        return first, ()
    known = dict.fromkeys(name for schema in kinds for name in schema.names)
    touched = wanted.among(known)
    fields = {field.name: field for field in first if first.names.count(field.name) == 1}
    wrong, notes = [], []
    for place, name in enumerate(touched):
        fields_of_kinds = [schema.field(name) if name in schema.names else None for schema in kinds]
        holder = next(kind for kind, field in enumerate(fields_of_kinds) if field is not None)
        whole = kinds[holder].field(name)
        having = names[kind_of.index(holder)] if holder else ""
        for kind, field in enumerate(fields_of_kinds):
            wide = None if field is None else wider(whole, field)
            if wide is None:
                why = _difference(name, field, whole, having)
                wrong += [(k, place, f"{names[k]} {why}") for k, other in enumerate(kind_of) if other == kind]
            else:
                whole = wide
        fields[name] = whole
        notes += _notes(name, [fields_of_kinds[kind] for kind in kind_of], whole)
    if wrong:
        lacking = not set(touched) <= set(first.names)
        shown = "; ".join(text for _, _, text in sorted(wrong)[:_MOST_SHOWN])
        more = f"; and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        # the first file is no model if it lacks columns itself
        model = "same columns and types" if lacking else f"columns and types of the first, {names[0]}"
        raise SourceError(
            f"All files of a source need the {model}: {shown}{more}. Leave such columns out, or write all files with "
            "one schema."
        )
    return pa.schema([fields.get(field.name, field) for field in first]), tuple(notes)


def _distinct(schemas: Sequence[pa.Schema]) -> tuple[list[pa.Schema], list[int]]:
    """The distinct schemas, and for each schema the index of its distinct one: many files have few."""
    kinds: list[pa.Schema] = []
    kind_of = []
    for schema in schemas:
        plain = schema.remove_metadata()  # that of a file differs by writer; the metadata of fields matters
        for kind, other in enumerate(kinds):
            if plain.equals(other, check_metadata=True):
                kind_of.append(kind)
                break
        else:
            kind_of.append(len(kinds))
            kinds.append(plain)
    return kinds, kind_of


def _check_names(schema: pa.Schema, where: str, wanted: Wanted) -> None:
    if len(set(schema.names)) == len(schema.names):
        return
    counts = Counter(schema.names)
    for name in wanted.among(counts):
        if counts[name] > 1:
            raise SchemaError(f"Column names must be unique; {where} has {counts[name]} columns {name!r}. Rename them.")


def _difference(name: str, field: pa.Field | None, whole: pa.Field, having: str) -> str:
    """How a file differs; `having` is the file that has the column, if it is not the first."""
    if field is None:
        return f"has no column {name!r}" + (f", which {having} has" if having else "")
    return f"has {name!r} as {_type_name(field)}, not {_type_name(whole)}"


def _type_name(field: pa.Field) -> str:
    return "bfloat16" if is_bfloat16(field) else str(field.type)


def _notes(name: str, fields: Sequence[pa.Field | None], whole: pa.Field) -> list[str]:
    if is_text(whole.type):
        return []
    counts = Counter(_type_name(field) for field in fields if field is not None)
    if len(counts) < 2:
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
