"""Unwraps extension types, run-end encoding and views."""

import re
from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np
import pyarrow as pa

from tensorstash.columns.arrays import nulls, numbers, of_numbers
from tensorstash.columns.types import is_list, is_text

_VIEWS = re.compile("(string|binary)_view")  # in the name of a type, whatever it is nested in


def unwrapped_type(arrow: pa.DataType) -> pa.DataType:
    """The plain type of a column: without extension types, run-end encoding and views of lists."""
    return _plain(pa.nulls(0, arrow)).type


def unwrapped(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array in its plain type, or in one to which that is cast."""
    plain = _plain(array)
    return plain if plain.type == target else plain.cast(target)


def _plain(array: pa.Array) -> pa.Array:
    arrow = array.type
    if isinstance(arrow, pa.BaseExtensionType):
        if arrow.extension_name != "arrow.fixed_shape_tensor":
            return _plain(array.storage)
        is_turned = arrow.permutation is not None and [*arrow.permutation] != sorted(arrow.permutation)
        return array if is_turned else _nested_lists(array.storage, arrow.shape)
    if pa.types.is_run_end_encoded(arrow):
        return _plain(_runs_expanded(array))
    is_view = pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow)
    return _in_order(array) if is_view else array


def _in_order(views: pa.Array) -> pa.Array:
    """Views of lists as consecutive lists; Arrow's cast makes invalid lists."""
    holes, sizes = nulls(views), numbers(views.sizes)
    sizes = sizes if holes is None else np.where(holes, 0, sizes)
    ends = of_numbers(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    return pa.LargeListArray.from_arrays(ends, views.flatten(), mask=views.is_null() if views.null_count else None)


def _nested_lists(lists: pa.Array, shape: Sequence[int]) -> pa.Array:
    size = prod(shape)
    items = lists.values.slice(lists.offset * size, len(lists) * size)
    array = reduce(pa.FixedSizeListArray.from_arrays, reversed(shape[1:]), items)
    mask = lists.is_null() if lists.null_count else None
    return pa.FixedSizeListArray.from_arrays(array, shape[0], mask=mask)


def _runs_expanded(array: pa.Array) -> pa.Array:
    """The value of each row of a run-end encoded array; Arrow's function lacks some types of values."""
    ends = numbers(array.run_ends)
    rows = np.arange(array.offset, array.offset + len(array))
    return without_views(array.values).take(of_numbers(np.searchsorted(ends, rows, side="right")))


def _is_view(arrow: pa.DataType) -> bool:
    """Whether values of this type are views."""
    return bool(pa.types.is_string_view(arrow) or pa.types.is_binary_view(arrow))


def without_null_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the null slots of views zeroed; columns without views or without nulls are not copied.

    Validation skips null slots, but kernels of Arrow follow the sizes and addresses in them.
    """
    return pa.RecordBatch.from_arrays([*map(_cleared, batch.columns)], schema=batch.schema)


def _cleared(array: pa.Array) -> pa.Array:
    arrow = array.type
    if _VIEWS.search(str(arrow)) is None or (_is_view(arrow) and not array.null_count):
        return array
    if pa.types.is_dictionary(arrow):
        return pa.DictionaryArray.from_arrays(array.indices, _cleared(array.dictionary), ordered=arrow.ordered)
    return pa.concat_arrays([pa.nulls(0, arrow), array])  # zeroes the null slots of what it appends, at any depth


def without_views(array: pa.Array) -> pa.Array:
    """Strings or bytes without views, which few kernels take, also in lists and structs."""
    arrow = array.type
    if pa.types.is_dictionary(arrow) and _is_view(arrow.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, without_views(array.dictionary), ordered=arrow.ordered)
    plain = _without_views(arrow)
    return array if plain == arrow else array.cast(plain)


def _without_views(arrow: pa.DataType) -> pa.DataType:
    if _is_view(arrow):
        return pa.large_string() if pa.types.is_string_view(arrow) else pa.large_binary()
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_without_views(field.type)) for field in arrow])
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(arrow.value_field.with_type(_without_views(arrow.value_type)), arrow.list_size)
    if is_list(arrow) and _VIEWS.search(str(arrow)):
        return pa.large_list(arrow.value_field.with_type(_without_views(arrow.value_type)))
    return arrow


def decoded(array: pa.Array) -> pa.Array:
    """The values without a dictionary and without views, text as large strings."""
    array = without_views(array)
    if pa.types.is_dictionary(array.type):
        values = array.dictionary.cast(pa.large_string()) if is_text(array.type) else array.dictionary
        array = pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    return array.cast(pa.large_string()) if is_text(array.type) else array
