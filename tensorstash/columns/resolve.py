"""From what callers say to columns: each spec resolved against the schema of the source."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.column import Column
from tensorstash.columns.names import check_name, field_of
from tensorstash.columns.spec import ColumnSpec
from tensorstash.columns.types import from_arrow, is_text
from tensorstash.common.dtypes import DTYPES
from tensorstash.errors import DataError, SchemaError


def resolve(
    schema: pa.Schema, specs: Mapping[str, ColumnSpec], dtype: torch.dtype | None, where: str, argument: str = "columns"
) -> tuple[Column, ...]:
    """The columns to load, in the order asked for; floating ones are cast to `dtype`, if given."""
    resolved = []
    for name, spec in specs.items():
        shown = list(spec.members) if isinstance(spec.source, tuple) else spec.source
        check_name(name, "a column", repr(shown), argument)
        fields = [field_of(schema, str(member), where) for member in spec.members]
        parts = [from_arrow(name, field) for field in fields]
        if spec.mask:
            resolved.append(_mask(name, parts, spec))
            continue
        if spec.vocabulary is not None or spec.buckets is not None:
            resolved.append(_coded(name, parts, [field.type for field in fields], spec))
            continue
        whole = _pack(name, parts) if isinstance(spec.source, tuple) else parts[0]
        resolved.append(_choose(whole, parts, spec, dtype))
    return tuple(resolved)


def _mask(name: str, parts: list[Column], spec: ColumnSpec) -> Column:
    """The column that says where others have a value."""
    members = tuple(part.members[0] for part in parts)
    if not isinstance(spec.source, tuple):
        return Column(name, members, torch.bool, parts[0].shape, bits=parts[0].bits, mask=True)
    if not parts or any(part.shape or part.bits for part in parts):
        raise SchemaError(
            f"A pack of masks is of plain columns; {name!r} is of {list(members)}. Take one mask for each column."
        )
    return Column(name, members, torch.bool, (len(parts),), mask=True)


def _coded(name: str, parts: list[Column], types: list[pa.DataType], spec: ColumnSpec) -> Column:
    """A column of codes for text or integers, by a vocabulary that was given, or hashed."""
    what = "A vocabulary is" if spec.buckets is None else "Hashing is"
    if isinstance(spec.source, tuple):
        raise SchemaError(f"{what} for one column; {name!r} is of {list(spec.source)}. Load each one for itself.")
    (arrow,) = types
    plain = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    if not is_text(plain) and (not pa.types.is_integer(plain) or parts[0].bits):
        raise SchemaError(f"{what} for text and integers; column {spec.source!r} is {arrow}. Load it as it is.")
    if spec.dtype is not None:
        raise SchemaError(f"Codes are int32; column {name!r} asks for {spec.dtype}. Leave dtype= out.")
    given = Column(name, parts[0].members, torch.int32, vocabulary=spec.vocabulary, buckets=spec.buckets)
    if spec.vocabulary is None:
        return replace(given, kind="hashed")
    if is_text(plain) != isinstance(spec.vocabulary[0], str):
        raise SchemaError(
            f"vocabulary= holds values of its column; {spec.vocabulary[0]!r} is none of {spec.source!r}, which is "
            f"{arrow}. Convert the vocabulary."
        )
    if spec.fill is not None and (isinstance(spec.fill, (bool, float)) or spec.fill not in spec.vocabulary):
        raise ValueError(f"fill= is in the vocabulary of its column; {spec.fill!r} is not in that of {name!r}. Add it.")
    return replace(given, kind="category", fill=spec.fill)


def _pack(name: str, parts: list[Column]) -> Column:
    if not parts:
        raise ValueError(f"A pack has at least one member; {name!r} has none. Name its source columns.")
    for part in parts:
        if part.kind != "number" or part.shape or part.dtype == torch.bfloat16:
            raise SchemaError(
                f"A pack holds plain numbers of one type; its member {part.members[0]!r} of {name!r} is not one. "
                "Load it as a column of its own."
            )
    promoted = np.result_type(*(DTYPES[part.dtype][1] for part in parts))
    dtype = next(torch_ for torch_, (_, numpy_) in DTYPES.items() if numpy_ == promoted.name)
    return Column(name, tuple(part.members[0] for part in parts), dtype, (len(parts),))


def _choose(whole: Column, parts: list[Column], spec: ColumnSpec, dtype: torch.dtype | None) -> Column:
    chosen = whole.dtype
    if any(part.dtype.is_floating_point for part in parts) and dtype is not None:
        chosen = dtype
    if spec.dtype is not None:
        if whole.kind == "category" and spec.dtype.is_floating_point:
            raise SchemaError(
                f"dtype= is for numbers; column {whole.name!r} is text. Load the numbers that its texts stand for, and "
                f"NaN for other texts: ts.column(pl.col({whole.members[0]!r}).cast(pl.Float64, strict=False), "
                "dtype=...)."
            )
        if whole.kind != "number":
            raise SchemaError(f"dtype= is for numbers; column {whole.name!r} is a {whole.kind}. Leave dtype= out.")
        chosen = spec.dtype
    if chosen not in DTYPES:
        raise SchemaError(f"A stash holds {', '.join(map(str, DTYPES))}; column {whole.name!r} asks for {chosen}.")
    fill = spec.fill
    if fill is not None and isinstance(fill, str) != (whole.kind == "category"):
        raise ValueError(f"fill= must be a value of its column; {whole.name!r} is a {whole.kind}, got {fill!r}.")
    if fill is not None and not isinstance(fill, str) and not _fits(fill, chosen):
        raise DataError(f"fill= must be a value of its column; {fill!r} is none of {whole.name!r} ({chosen}).")
    return replace(whole, dtype=chosen, fill=fill)


def _fits(fill: float, dtype: torch.dtype) -> bool:
    """Whether a fill can be stored: exactly, but for the rounding of floating types."""
    if dtype.is_floating_point:
        return fill != fill or abs(fill) == math.inf or abs(fill) <= torch.finfo(dtype).max  # noqa: PLR0124
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return fill == fill and low <= fill <= high and fill == int(fill)  # noqa: PLR0124  NaN is no integer


def time_column(schema: pa.Schema, name: str, where: str) -> Column:
    """The time column: int64 with the unit and zone of its source."""
    field = field_of(schema, name, where)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    may_be = pa.types.is_timestamp(plain) or pa.types.is_date(plain) or pa.types.is_integer(plain)
    found = from_arrow("__time", field) if may_be else None
    if found is not None and found.kind in ("timestamp", "date"):
        return found
    if found is not None and found.kind == "number" and not found.dtype.is_floating_point and found.dtype != torch.bool:
        return Column("__time", found.members, torch.int64)
    raise SchemaError(
        f"time= names a timestamp, date or integer column; {name!r} is {field.type}. Convert it before "
        f"loading{_as_time(field)}."
    )


def _as_time(field: pa.Field) -> str:
    """An expression that makes times of a column, if there is one."""
    column, example = f"pl.col({field.name!r})", ", for example with polars: "
    if is_text(field.type):
        return f"{example}{column}.str.to_datetime()"
    if pa.types.is_floating(field.type) or pa.types.is_decimal(field.type):
        return f"{example}({column} * 1000).round().cast(pl.Datetime('ms')), if it is in seconds since 1970"
    if pa.types.is_duration(field.type) or pa.types.is_time(field.type):
        return f"{example}{column}.cast(pl.Int64)"
    return ""


def entity_columns(entity: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the entity columns, however they were written."""
    if entity is None:
        return ()
    names = (entity,) if isinstance(entity, str) else tuple(entity) if isinstance(entity, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"entity= is the name of a column, or a list of names; got {entity!r}.")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise SchemaError(f"An entity column is named once; entity= has {twice[0]!r} twice.")
    return names


def entity_column(schema: pa.Schema, entity: str | Sequence[str], where: str) -> Column:
    """The entity column, or several as one, `(k,)`, as a category; the dtype of a single one is its names' kind."""
    names, dtype = entity_columns(entity), torch.int32
    for name in names:
        field = field_of(schema, name, where)
        arrow = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not (is_text(arrow) or pa.types.is_integer(arrow)):
            raise SchemaError(f"entity= names a text or integer column; {name!r} is {field.type}. Convert it to text.")
        dtype = torch.int32 if is_text(arrow) else torch.int64
    shape = () if isinstance(entity, str) else (len(names),)
    return Column("__entity", names, dtype, shape, kind="category")
