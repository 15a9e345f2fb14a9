"""What a column is: the table of types between Arrow, numpy, torch and safetensors, and the choice of columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Union

import numpy as np
import pyarrow as pa
import torch

from tensorstash.checks import vocabulary_of
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.expression import Formula, alias_of, source_of

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["number", "category", "hashed", "timestamp", "date", "time", "duration"]
Fill = float | int | bool | str
Source = Union[str, "pl.Expr"]
Columns = Sequence["Source | ColumnSpec"] | Mapping[str, "Source | Sequence[Source] | ColumnSpec"]

# torch dtype -> (safetensors code, numpy name); bfloat16 has no numpy type and travels as the bits of a uint16.
DTYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.bool: ("BOOL", "bool"),
    torch.int8: ("I8", "int8"),
    torch.uint8: ("U8", "uint8"),
    torch.int16: ("I16", "int16"),
    torch.uint16: ("U16", "uint16"),
    torch.int32: ("I32", "int32"),
    torch.uint32: ("U32", "uint32"),
    torch.int64: ("I64", "int64"),
    torch.uint64: ("U64", "uint64"),
    torch.float16: ("F16", "float16"),
    torch.bfloat16: ("BF16", "uint16"),
    torch.float32: ("F32", "float32"),
    torch.float64: ("F64", "float64"),
}
_NUMBERS: dict[pa.DataType, torch.dtype] = {
    pa.bool_(): torch.bool,
    pa.int8(): torch.int8,
    pa.uint8(): torch.uint8,
    pa.int16(): torch.int16,
    pa.uint16(): torch.uint16,
    pa.int32(): torch.int32,
    pa.uint32(): torch.uint32,
    pa.int64(): torch.int64,
    pa.uint64(): torch.uint64,
    pa.float16(): torch.float16,
    pa.float32(): torch.float32,
    pa.float64(): torch.float64,
}
# Arrow has no bfloat16: a uint16 field that carries this metadata holds its bits.
BFLOAT16 = {b"tensorstash.dtype": b"bfloat16"}

RESERVED = frozenset({"valid", "window", "entity", "anchor", "reset"})


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """What `ts.column` returns: a source column, or several packed into one, and the choices made for it."""

    source: str | Formula | tuple[str | Formula, ...]
    dtype: torch.dtype | None = None
    fill: Fill | None = None
    mask: bool = False
    vocabulary: tuple[str, ...] | tuple[int, ...] | None = None
    buckets: int | None = None  # as `ts.hashed` has it


def column(
    source: "Source | Sequence[Source]",
    *,
    dtype: torch.dtype | None = None,
    fill: Fill | None = None,
    vocabulary: Iterable[str] | Iterable[int] | None = None,
) -> ColumnSpec:
    """Choose how one column of a stash is stored.

    Args:
        source: the name of a source column or a polars expression, or several of them, which are packed into one
            column of shape `(rows, len(source))`.
        dtype: the type to store. Floating types are rounded to it; any other cast must keep every value.
        fill: stored where the source has a missing value (a null, or NaN in a floating column). Without it
            floating columns get NaN, codes are -1, and integers and booleans are an error.
        vocabulary: the texts or integers of a text or integer column, which is held as int32 codes then: value k has
            code k, everything that is not in it has the code `len(vocabulary)`, and a null -1 or the code of `fill`,
            which must be in it. An embedding needs `len(vocabulary) + 1` rows. Without it, the values of a text column
            are numbered in order of appearance.

    Example:
        >>> import torch, tensorstash as ts
        >>> stash = ts.load({"a": [1, None, 3]}, columns={"x": ts.column("a", dtype=torch.float16, fill=0)})
        >>> stash["x"]
        tensor([1., 0., 3.], dtype=torch.float16)
        >>> country = ts.column("country", vocabulary=["SE", "NO"])
        >>> ts.load({"country": ["NO", "PE", "SE", None]}, [country])["country"]
        tensor([ 1,  2,  0, -1], dtype=torch.int32)
    """
    check_dtype(dtype)
    plain = fill.item() if isinstance(fill, (np.generic, torch.Tensor)) else fill
    values = None if vocabulary is None else vocabulary_of(vocabulary)
    return ColumnSpec(source_of(source), dtype, plain, vocabulary=values)


def check_dtype(dtype: object) -> None:
    """Refuse the names and types of other libraries."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype= is a torch.dtype, such as torch.float32; got {dtype!r}.")


def is_valid(source: "Source | Sequence[Source]") -> ColumnSpec:
    """A bool column that says where the source has a value: neither a null nor, in a floating column, NaN.

    Args:
        source: the name of a source column or a polars expression, or several of them, which are packed into one
            column of shape `(rows, len(source))`. The column itself need not be loaded.

    Example:
        >>> import tensorstash as ts
        >>> columns = {"temp": ts.column("temp", fill=0.0), "temp_ok": ts.is_valid("temp")}
        >>> stash = ts.load({"temp": [1.5, None, 0.0]}, columns)
        >>> stash["temp"].tolist(), stash["temp_ok"].tolist()
        ([1.5, 0.0, 0.0], [True, False, True])
    """
    return ColumnSpec(source_of(source), mask=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stash, resolved against the schema of its source."""

    name: str
    members: tuple[str, ...]  # the source columns that it is made of
    dtype: torch.dtype
    shape: tuple[int, ...] = ()  # of one row
    kind: Kind = "number"
    unit: str | None = None  # "s", "ms", "us", "ns", or "d" where the kind is a time
    zone: str | None = None
    fill: Fill | None = None
    bits: bool = False  # whether the source has bfloat16, as uint16
    mask: bool = False  # whether it says where the source has a value, instead of holding it
    vocabulary: tuple[str, ...] | tuple[int, ...] | None = None  # that was given
    buckets: int | None = None  # of a hash of each value

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes for values, and -1 for a missing one."""
        return self.kind in ("category", "hashed")

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape)


def is_text(arrow: pa.DataType) -> bool:
    """Whether values of this type become codes with a vocabulary."""
    if pa.types.is_dictionary(arrow):
        return is_text(arrow.value_type)
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def from_arrow(name: str, field: pa.Field) -> Column:
    """The column that holds the values of an Arrow field, as the field's own type asks for."""
    arrow = field.type
    if is_text(arrow):
        return Column(name, (field.name,), torch.int32, kind="category")
    if pa.types.is_dictionary(arrow):
        field = field.with_type(arrow.value_type)
        arrow = field.type
    if pa.types.is_fixed_size_list(arrow) and arrow.list_size:
        item = from_arrow(name, pa.field(field.name, arrow.value_type, metadata=field.metadata))
        if item.kind == "number":
            return replace(item, shape=(arrow.list_size, *item.shape))
    if field.metadata is not None and BFLOAT16.items() <= field.metadata.items():
        return Column(name, (field.name,), torch.bfloat16, bits=True)
    if arrow in _NUMBERS:
        return Column(name, (field.name,), _NUMBERS[arrow])
    if pa.types.is_temporal(arrow) and not pa.types.is_interval(arrow):
        return Column(name, (field.name,), torch.int64, *_temporal(arrow))
    raise SchemaError(
        f"A stash holds numbers, booleans, text, dates, times and fixed-size lists of numbers; column {field.name!r} "
        f"is {arrow}. Leave it out of columns= and static=, or convert it before loading."
    )


def _temporal(arrow: pa.DataType) -> tuple[tuple[int, ...], Kind, str, str | None]:
    """Shape, kind, unit and zone of a column of times."""
    if pa.types.is_timestamp(arrow):
        return (), "timestamp", arrow.unit, arrow.tz
    if pa.types.is_date(arrow):
        return (), "date", "d", None
    return (), "duration" if pa.types.is_duration(arrow) else "time", arrow.unit, None


def field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """The one field of that name."""
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise unknown(name, schema.names, where)
    if len(indices) > 1:
        raise SchemaError(f"Column names must be unique; {where} has {len(indices)} columns {name!r}. Rename them.")
    return schema.field(indices[0])


def check_name(name: str, what: str, source: object = None, argument: str = "columns") -> None:
    """Refuse a name that batches or the segment need for themselves."""
    if name in RESERVED or "." in name or name.startswith("__") or not name:
        raise SchemaError(
            f"The names {', '.join(sorted(RESERVED))}, names with a dot and names that begin with '__' are reserved; "
            f'{what} is named {name!r}. Give it another name: {argument}={{"new_name": {source or repr(name)}}}.'
        )


def resolve(
    schema: pa.Schema, columns: Columns, dtype: torch.dtype | None, where: str, argument: str = "columns"
) -> tuple[Column, ...]:
    """The columns to load, in the order asked for; `argument` is what the caller names them with."""
    check_dtype(dtype)
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype= casts the floating columns and must be floating; got {dtype}. Use ts.column(dtype=).")
    resolved = []
    for name, spec in named(columns, argument):
        members = spec.source if isinstance(spec.source, tuple) else (spec.source,)
        check_name(name, "a column", repr(list(members) if isinstance(spec.source, tuple) else spec.source), argument)
        fields = [field_of(schema, str(member), where) for member in members]
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


def named(columns: Columns, argument: str = "columns") -> list[tuple[str, ColumnSpec]]:
    """Each column's name and what was chosen for it, however they were written."""
    if isinstance(columns, str):
        raise TypeError(f"{argument}= is a list of names or a mapping; got the text {columns!r}. Write [{columns!r}].")
    if not isinstance(columns, (Mapping, Sequence)):
        raise TypeError(f"{argument}= is a list of names or a mapping; got a {type(columns).__name__}.")
    if isinstance(columns, Mapping):
        if wrong := [name for name in columns if not isinstance(name, str)]:
            raise TypeError(f"Columns are named by texts; got {wrong[0]!r}. Write {str(wrong[0])!r}.")
        return [(name, _spec(spec)) for name, spec in columns.items()]
    specs = [_spec(spec) for spec in columns]
    for spec in specs:
        if spec.mask:
            raise ValueError(
                f"A mask needs a name; got ts.is_valid({spec.source!r}) in a list. Write {{'name': ts.is_valid(...)}}."
            )
        if isinstance(spec.source, tuple):
            raise ValueError(f"A pack needs a name; got {list(spec.source)} in a list. Write {{'name': [...]}}.")
    named = [(alias_of(spec.source), spec) for spec in specs]
    twice = {name for name, _ in named if sum(name == other for other, _ in named) > 1}
    if twice:
        raise SchemaError(f"Column names must be unique; {sorted(twice)} came more than once. Use a mapping of names.")
    return named


def _spec(given: object) -> ColumnSpec:
    if isinstance(given, ColumnSpec):
        return given
    return ColumnSpec(source_of(given))


def sources_of(columns: Columns, argument: str = "columns") -> set[str]:
    """The source columns that are named, not those of formulas."""
    sources = [spec.source for _, spec in named(columns, argument)]
    members = [member for source in sources for member in (source if isinstance(source, tuple) else (source,))]
    return {member for member in members if isinstance(member, str)}


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
        return not math.isfinite(fill) or abs(fill) <= torch.finfo(dtype).max
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return fill == fill and low <= fill <= high and fill == int(fill)  # noqa: PLR0124  NaN is no integer


def time_column(schema: pa.Schema, name: str, where: str) -> Column:
    """The time column: int64 with the unit and zone of its source."""
    field = field_of(schema, name, where)
    found = None if pa.types.is_nested(field.type) else from_arrow("__time", field)
    if found is not None and found.kind in ("timestamp", "date"):
        return found
    if found is not None and found.kind == "number" and not found.dtype.is_floating_point and found.dtype != torch.bool:
        return Column("__time", found.members, torch.int64)
    raise SchemaError(
        f"time= names a timestamp, date or integer column; {name!r} is {field.type}. Convert it, for example with "
        "polars: pl.col(...).str.to_datetime()."
    )


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
