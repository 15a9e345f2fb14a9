"""Lists and bytes of one length as fixed-size lists, because a tensor has one shape for all rows."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.types import is_list, is_number, value_type
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.read import Derived, Source, read, with_derived
from tensorstash.sources.storage import decoded


def shaped(source: Source, names: Collection[str]) -> Source:
    """The source with lists and bytes in these columns as fixed-size lists; reads lists until one has an item."""
    derived = [
        Derived(field.with_type(arrow), (field.name,), partial(_fixed, source.label, field.name, arrow))
        for field in map(source.schema.field, sorted(names, key=source.schema.get_field_index))
        if _becomes_lists(field.type)
        if (arrow := _type_of_field(source, field)) != field.type
    ]
    return with_derived(source, derived)


def _levels(arrow: pa.DataType) -> list[pa.DataType]:
    """The type of the values, of the lists in them, and so on down to the items."""
    levels = [value_type(arrow)]
    while is_list(levels[-1]) or pa.types.is_fixed_size_list(levels[-1]):
        levels.append(levels[-1].value_type)
    return levels


def _becomes_lists(arrow: pa.DataType) -> bool:
    *lists, item = _levels(arrow)
    return bool(pa.types.is_fixed_size_binary(item) or (lists and is_number(item)))


def _type_of_field(source: Source, field: pa.Field) -> pa.DataType:
    if not any(map(is_list, _levels(field.type))):
        return _fixed_type(pa.nulls(0, field.type)) or field.type
    for unit in source.units:
        for _, batch in read(unit, [field.name]):
            if (fixed := _fixed_type(batch.column(0))) is not None:
                return fixed
    raise SchemaError(
        f"The first list that is neither null nor empty decides the length of lists; column {field.name!r} of "
        f"{source.label} is {field.type} without such a list. Leave it out of columns= and static=."
    )


def _fixed_type(array: pa.Array) -> pa.DataType | None:
    """The type of an array with lists and bytes as fixed-size lists; `None` if no list has an item."""
    array = decoded(array)
    arrow = array.type
    if pa.types.is_fixed_size_binary(arrow):
        return pa.list_(pa.uint8(), arrow.byte_width)
    if not (is_list(arrow) or pa.types.is_fixed_size_list(arrow)):
        return arrow
    lengths = pc.list_value_length(array).drop_null()
    size = arrow.list_size if pa.types.is_fixed_size_list(arrow) else next((n for n in lengths.to_pylist() if n), 0)
    inside = _fixed_type(array.flatten()) if size else None
    return None if inside is None else pa.list_(inside, size)


def _fixed(
    label: str, name: str, arrow: pa.DataType, arrays: Sequence[pa.Array], _place: str, name_row: Callable[[int], str]
) -> pa.Array:

    def refuse(at: int, length: int, expected: int) -> DataError:
        return DataError(
            f"Lists of a column must have one length; column {name!r} has one of {length:,} in row "
            f"{name_row(at)} of {label}, and the first one has {expected:,}. Leave such rows out "
            "with filter=, or pad the lists."
        )

    return _as_lists(decoded(arrays[0]), arrow, refuse, 1)


def _as_lists(
    array: pa.Array, arrow: pa.DataType, refuse: Callable[[int, int, int], DataError], items: int
) -> pa.Array:
    """The array in the type `arrow`, copied only if it has nulls; each row of the column has `items` of its values."""
    if array.type == arrow:
        return array
    size = arrow.list_size
    if pa.types.is_fixed_size_binary(array.type):
        inside = pa.Array.from_buffers(
            pa.uint8(), len(array) * size, [None, array.buffers()[1]], offset=array.offset * size
        )
    else:
        if not pa.types.is_fixed_size_list(array.type):
            lengths = pc.list_value_length(array)
            if (at := pc.index(pc.not_equal(lengths, size), True).as_py()) >= 0:
                raise refuse(at // items, lengths[at].as_py(), size)
            if array.null_count == len(array):
                return pa.nulls(len(array), arrow)  # where a file has no items at all, Arrow's cast crashes
            array = array.cast(pa.list_(array.type.value_type, size))
        inside = array.values.slice(array.offset * size, len(array) * size)
    mask = array.is_null() if array.null_count else None
    inside = _as_lists(inside, arrow.value_type, refuse, items * size)
    return pa.FixedSizeListArray.from_arrays(inside, type=arrow, mask=mask)
