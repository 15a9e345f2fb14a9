"""Lists and bytes whose lengths are equal as fixed-size lists: a tensor has one shape for all rows."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.types import is_number
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.scan import Derived, Scan, read, with_derived


def shaped(scanned: Scan, names: Collection[str]) -> Scan:
    """The scan with lists and bytes of the named columns as fixed-size lists; of lists the first batch is read."""
    derived = [
        Derived(field.with_type(arrow), (field.name,), partial(_fixed, scanned, field.name, arrow))
        for field in scanned.schema
        if field.name in names and _has_bytes_or_lists(field.type)
        if (arrow := _type_of_field(scanned, field)) != field.type
    ]
    return with_derived(scanned, derived)


def _value_type(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


def _has_bytes_or_lists(arrow: pa.DataType) -> bool:
    """Whether the values of a type are lists of numbers or bytes, and become a tensor if their lengths are equal."""
    arrow, depth = _value_type(arrow), 0
    while _is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        arrow, depth = arrow.value_type, depth + 1
    return bool(pa.types.is_fixed_size_binary(arrow)) or (depth > 0 and is_number(arrow))


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def _is_ragged(arrow: pa.DataType) -> bool:
    """Whether lists of this type may differ in length."""
    arrow = _value_type(arrow)
    return _is_list(arrow) or (bool(pa.types.is_fixed_size_list(arrow)) and _is_ragged(arrow.value_type))


def _type_of_field(scanned: Scan, field: pa.Field) -> pa.DataType:
    if not _is_ragged(field.type):
        return _fixed_type(pa.nulls(0, field.type)) or field.type
    for unit in scanned.units:
        for _, batch in read(unit, [field.name]):
            if (fixed := _fixed_type(batch.column(0))) is not None:
                return fixed
    raise SchemaError(
        f"Lists have the length of the first one that is neither null nor empty; column {field.name!r} of "
        f"{scanned.label} is {field.type} without such a list. Leave it out of columns= and static=."
    )


def _fixed_type(array: pa.Array) -> pa.DataType | None:
    """The type of an array with fixed-size lists in place of lists and bytes; `None` if it has no list with an item."""
    array = _without_dictionary(array)
    arrow = array.type
    if pa.types.is_fixed_size_binary(arrow):
        return pa.list_(pa.uint8(), arrow.byte_width)
    if not (_is_list(arrow) or pa.types.is_fixed_size_list(arrow)):
        return arrow
    lengths = pc.list_value_length(array).drop_null()
    size = arrow.list_size if pa.types.is_fixed_size_list(arrow) else next((n for n in lengths.to_pylist() if n), 0)
    inside = _fixed_type(array.flatten()) if size else None
    return None if inside is None else pa.list_(inside, size)


def _without_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _fixed(scanned: Scan, name: str, arrow: pa.DataType, arrays: Sequence[pa.Array], _place: str, row: int) -> pa.Array:
    """An array as fixed-size lists; a list of another length is refused."""

    def refuse(at: int, length: int, expected: int) -> DataError:
        return DataError(
            f"Lists of a column have one length; column {name!r} has one of {length:,} in row "
            f"{scanned.name_row(row + at)} of {scanned.label}, and the first one has {expected:,}. Leave such rows out "
            "with filter=, or pad the lists."
        )

    return _as_lists(_without_dictionary(arrays[0]), arrow, refuse, 1)


def _as_lists(
    array: pa.Array, arrow: pa.DataType, refuse: Callable[[int, int, int], DataError], items: int
) -> pa.Array:
    """The array as the type `arrow`, without a copy unless there are nulls; a row of the column is `items` of it."""
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
            array = array.cast(pa.list_(array.type.value_type, size))
        inside = array.values.slice(array.offset * size, len(array) * size)
    mask = array.is_null() if array.null_count else None
    inside = _as_lists(inside, arrow.value_type, refuse, items * size)
    return pa.FixedSizeListArray.from_arrays(inside, type=arrow, mask=mask)
