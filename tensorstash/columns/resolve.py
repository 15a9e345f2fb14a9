"""Resolves column specs against the schema of the source."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.codec import Ascending, Given, Hashed, Validity
from tensorstash.columns.column import Column, fits
from tensorstash.columns.names import check_name, field_of
from tensorstash.columns.spec import ColumnSpec
from tensorstash.columns.types import field_type, from_arrow, is_text, value_type
from tensorstash.common.checks import shown
from tensorstash.common.clock import zone_of
from tensorstash.common.dtypes import DTYPES
from tensorstash.errors import DataError, SchemaError


def resolve(
    schema: pa.Schema, specs: Mapping[str, ColumnSpec], dtype: torch.dtype | None, where: str, argument: str
) -> tuple[Column, ...]:
    """The columns to load, in the order of the specs; floating-point columns are cast to `dtype`, if given."""
    resolved = []
    for name, spec in specs.items():
        shown = list(spec.members) if spec.packed else spec.members[0]
        check_name(name, "a column", argument, repr(shown))
        fields = [field_of(schema, str(member), where) for member in spec.members]
        parts = [from_arrow(name, field) for field in fields]
        match spec.codec:
            case Validity():
                resolved.append(_validity(name, spec, parts))
            case Given() as codec:
                resolved.append(_given(name, spec, fields, codec.vocabulary))
            case Hashed():
                field = _coded("Hashing is", name, spec, fields)
                resolved.append(Column(name, (field.name,), torch.int32, kind="hashed", codec=spec.codec))
            case _:
                whole = _pack(name, parts) if spec.packed else parts[0]
                resolved.append(_choose(whole, parts, spec, dtype))
    return tuple(resolved)


def _validity(name: str, spec: ColumnSpec, parts: Sequence[Column]) -> Column:
    members = tuple(part.members[0] for part in parts)
    if not spec.packed:
        return Column(name, members, torch.bool, parts[0].shape, codec=Validity())
    if not parts or any(part.shape for part in parts):
        raise SchemaError(
            f"A pack of masks is made of plain columns; {name!r} is made of {list(members)}. Take one mask for each "
            "column."
        )
    return Column(name, members, torch.bool, (len(parts),), codec=Validity(), packed=True)


def _given(name: str, spec: ColumnSpec, fields: Sequence[pa.Field], known: Sequence[object]) -> Column:
    field = _coded("A vocabulary is", name, spec, fields)
    if is_text(field.type) != isinstance(known[0], str):
        raise SchemaError(
            f"vocabulary= must hold values of its column; {known[0]!r} cannot be a value of {spec.members[0]!r}, which "
            f"is {field.type}. Convert the vocabulary."
        )
    for argument, value in (("fill", spec.fill), ("empty", spec.empty)):
        if value is not None and (isinstance(value, (bool, float)) or value not in known):
            raise ValueError(
                f"{argument}= must be in the vocabulary of its column; {value!r} is not in the vocabulary of {name!r}. "
                "Add it."
            )
    return Column(name, (field.name,), torch.int32, kind="category", fill=spec.fill, codec=spec.codec, empty=spec.empty)


def _coded(what: str, name: str, spec: ColumnSpec, fields: Sequence[pa.Field]) -> pa.Field:
    """The field of a column that becomes codes."""
    if spec.packed:
        raise SchemaError(f"{what} for one column; {name!r} is made of {list(spec.members)}. Load each on its own.")
    (field,) = fields
    if not _is_key(field):
        raise SchemaError(
            f"{what} for text and integers; column {spec.members[0]!r} is {field_type(field)}. Load it as it is."
        )
    if spec.dtype is not None:
        raise SchemaError(f"Codes are int32; column {name!r} asks for {spec.dtype}. Leave dtype= out.")
    return field


def _is_key(field: pa.Field) -> bool:
    """Whether values are text or integers, of which codes and entities are made."""
    return is_text(field.type) or pa.types.is_integer(value_type(field.type))


def _pack(name: str, parts: list[Column]) -> Column:
    if not parts:
        raise ValueError(f"A pack has at least one member; {name!r} has none. Name its source columns.")
    for part in parts:
        if part.kind != "number" or part.shape or part.dtype == torch.bfloat16:
            raise SchemaError(
                f"A pack holds plain numbers of one type; its member {part.members[0]!r} of {name!r} is not one. "
                "Load it as a column of its own."
            )
    promoted = np.result_type(*(DTYPES[part.dtype][1] for part in parts)).name
    dtype = next(torch_ for torch_, (_, numpy_) in DTYPES.items() if numpy_ == promoted)
    members, digits = tuple(part.members[0] for part in parts), any(part.digits for part in parts)
    return Column(name, members, dtype, (len(parts),), digits=digits, packed=True)


def _choose(whole: Column, parts: list[Column], spec: ColumnSpec, dtype: torch.dtype | None) -> Column:
    """Apply the choices of the spec, and `dtype=` of the load, to a column in the type of its source."""
    chosen = whole.dtype
    if any(part.dtype.is_floating_point for part in parts) and dtype is not None:
        chosen = dtype
    if spec.dtype is not None:
        if whole.kind != "number":
            raise SchemaError(
                f"dtype= is for numbers; column {whole.name!r} is a {whole.kind}. Leave dtype= out, or load the "
                "numbers that its values stand for, and NaN for others: "
                f"ts.column(pl.col({whole.members[0]!r}).cast(pl.Float64, strict=False), dtype=...)."
            )
        chosen = spec.dtype
    if chosen not in DTYPES:
        raise SchemaError(f"A stash holds {', '.join(map(str, DTYPES))}; column {whole.name!r} asks for {chosen}.")
    for argument, value in (("fill", spec.fill), ("empty", spec.empty)):
        if value is not None and not (isinstance(value, str) if whole.kind == "category" else fits(value, chosen)):
            kind = str(chosen) if whole.kind == "number" else f"a {whole.kind}"
            raise DataError(
                f"{argument}= must be a value of its column; {whole.name!r} is {kind}, which cannot hold {value!r}."
            )
    # a caller who names a dtype accepts its precision
    digits = whole.digits and dtype is None and spec.dtype is None
    return replace(whole, dtype=chosen, fill=spec.fill, empty=spec.empty, calendar=spec.calendar, digits=digits)


def time_column(schema: pa.Schema, name: str, where: str, argument: str = "time") -> Column:
    """The times of `time=` or `known=`: int64, with the unit and zone of their source column."""
    field = field_of(schema, name, where)
    plain = value_type(field.type)
    if pa.types.is_timestamp(plain) or pa.types.is_date(plain):
        column = from_arrow(f"__{argument}", field)
        try:
            zone_of(column.zone)
        except DataError as error:  # such times could not be shown, nor split at a date
            raise SchemaError(
                f"{argument}={name!r} is in the zone {column.zone!r}, which is not an offset from UTC such as "
                "'+05:30', and which this machine does not know. Install tzdata, or convert the times to UTC."
            ) from error
        return column
    if pa.types.is_integer(plain):
        return Column(f"__{argument}", (field.name,), torch.int64)
    raise SchemaError(
        f"{argument}= must name a timestamp, date or integer column; {name!r} is {field_type(field)}. Convert it "
        "before loading."
    )


def check_comparable(time: Column, known: Column) -> None:
    """Refuse known times that cannot be compared with the times."""
    kinds = [_kind_of_times(column) for column in (time, known)]
    if kinds[0] != kinds[1]:
        raise SchemaError(
            f"Times and known times are compared, so they must be of one kind; {time.members[0]!r} of time= holds "
            f"{kinds[0]}, and {known.members[0]!r} of known= {kinds[1]}. Convert one of them."
        )


def _kind_of_times(column: Column) -> str:
    if column.unit is None:
        return "integers"
    return "dates or timestamps without a zone" if column.zone is None else "timestamps with a zone"


def entity_columns(entity: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the entity columns as a tuple, for `entity=` in any of its forms."""
    if entity is None:
        return ()
    names = (entity,) if isinstance(entity, str) else tuple(entity) if isinstance(entity, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"entity= must be the name of a column or a list of names, got {shown(entity)}.")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise SchemaError(f"entity= must name each column once, got {twice[0]!r} twice.")
    return names


def entity_column(schema: pa.Schema, entity: str | Sequence[str], where: str) -> Column:
    """The entity column; several source columns become one of shape `(k,)`."""
    names = entity_columns(entity)
    for name in names:
        field = field_of(schema, name, where)
        if not _is_key(field):
            raise SchemaError(f"entity= must be text or integers; {name!r} is {field_type(field)}. Convert it to text.")
    shape = () if isinstance(entity, str) else (len(names),)
    return Column("__entity", names, torch.int64, shape, kind="category", codec=Ascending())
