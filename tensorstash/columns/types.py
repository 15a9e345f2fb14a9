"""Arrow types and the columns that hold their values."""

from dataclasses import replace

import pyarrow as pa
import torch

from tensorstash.columns.codec import Ascending
from tensorstash.columns.column import Column, Kind, Unit
from tensorstash.columns.extensions import extension_of, is_opaque
from tensorstash.common.dtypes import DTYPES
from tensorstash.errors import SchemaError

_NUMBERS: dict[pa.DataType, torch.dtype] = {
    pa.from_numpy_dtype(numpy_name): dtype for dtype, (_, numpy_name) in DTYPES.items() if dtype != torch.bfloat16
}
# Arrow has no bfloat16: a field of float32 with this metadata holds its values.
BFLOAT16 = {b"tensorstash.dtype": b"bfloat16"}
_KINDS_OF_TIME: tuple[Kind, ...] = ("timestamp", "date", "time", "duration")


def value_type(arrow: pa.DataType) -> pa.DataType:
    """The type of a column's values; for a dictionary, its value type."""
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


def with_value_types(schema: pa.Schema) -> pa.Schema:
    """The schema by which pyarrow tells what a filter may keep: up to 25 it takes no dictionary to have nulls."""
    return pa.schema([field.with_type(value_type(field.type)) for field in schema])


def is_text(arrow: pa.DataType) -> bool:
    """Whether values of this type become codes with a vocabulary."""
    plain = value_type(arrow)
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain))


def is_list(arrow: pa.DataType) -> bool:
    """Whether values of this type are lists of any length."""
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def is_number(arrow: pa.DataType) -> bool:
    """Whether values of this type are stored as numbers."""
    return arrow in _NUMBERS or bool(pa.types.is_decimal(arrow))


def from_arrow(name: str, field: pa.Field) -> Column:
    """The column for an Arrow field, with the default dtype of the field's type."""
    if is_opaque(field):
        raise unstorable(field)
    arrow = value_type(field.type)
    field = field.with_type(arrow)
    if is_text(arrow):
        return Column(name, (field.name,), torch.int32, kind="category", codec=Ascending())
    if pa.types.is_fixed_size_list(arrow) and arrow.list_size:
        item = from_arrow(name, pa.field(field.name, arrow.value_type, metadata=field.metadata))
        if item.kind == "number":
            return replace(item, shape=(arrow.list_size, *item.shape))
    if is_bfloat16(field) and arrow == pa.float32():
        return Column(name, (field.name,), torch.bfloat16)
    if arrow in _NUMBERS:
        return Column(name, (field.name,), _NUMBERS[arrow])
    if pa.types.is_decimal(arrow):
        return Column(name, (field.name,), torch.float64, digits=True)
    kind = next((kind for kind in _KINDS_OF_TIME if getattr(pa.types, f"is_{kind}")(arrow)), None)
    if kind is not None:
        unit: Unit = "d" if kind == "date" else arrow.unit
        return Column(name, (field.name,), torch.int64, kind=kind, unit=unit, zone=getattr(arrow, "tz", None))
    raise unstorable(field)


def unstorable(field: pa.Field) -> SchemaError:
    """The error for a column whose type a stash cannot hold."""
    return SchemaError(
        "A stash holds numbers, booleans, text, dates, times, and bytes and lists of numbers of one length; column "
        f"{field.name!r} is {field_type(field)}. Leave it out of columns= and static=, or {_conversion(field)}."
    )


def _conversion(field: pa.Field) -> str:
    """The remedy for a column whose type a stash cannot hold."""
    arrow, column = field.type, f"pl.col({field.name!r})"
    if pa.types.is_null(arrow):
        return f"load {column}.cast(pl.Float64)"
    if is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return f"load one of its items: {_inside(column, arrow)}"
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return f"load its fields by their paths, such as {f'{field.name}.{arrow.field(0).name}'!r}"
    if extension_of(field)[0].endswith(".wkb"):
        return (
            f"load the numbers of points, and convert other shapes first: {column}.bin.slice(5, 8).bin.reinterpret("
            "dtype=pl.Float64) is x, and with 13 for 5 it is y"
        )
    if not extension_of(field)[0] and arrow in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return f"load {column}.cast(pl.String), if it is text in UTF-8"
    return "convert it before loading"


def _inside(column: str, arrow: pa.DataType) -> str:
    """The expression of the first value in lists and structs."""
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return _inside(f"{column}.struct.field({arrow.field(0).name!r})", arrow.field(0).type)
    if is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return _inside(f"{column}.{'list' if is_list(arrow) else 'arr'}.get(0)", arrow.value_type)
    return column


def is_bfloat16(field: pa.Field) -> bool:
    """Whether a field of floats says that its values are of bfloat16."""
    return field.metadata is not None and BFLOAT16.items() <= field.metadata.items()


def field_type(field: pa.Field) -> str:
    """The type of a field for messages."""
    name, parameters = extension_of(field)
    return "bfloat16" if is_bfloat16(field) else f"{name} {parameters}".strip() or str(field.type)
