"""Columns of wrapped types as the types that hold their values: extension types, run-end encoding, views of lists."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.sources.scan import Derived, Scan, with_derived

_VIEW_BYTES = 16  # per view: the size, then the text itself or its location


def stored(scanned: Scan) -> Scan:
    """The scan with each column in the type that holds its values."""
    derived = [
        Derived(field.with_type(arrow), (field.name,), partial(_unwrapped, arrow))
        for field in scanned.schema
        if (arrow := unwrapped_type(field.type)) != field.type
    ]
    return with_derived(scanned, derived)


def unwrapped_type(arrow: pa.DataType) -> pa.DataType:
    """The plain type of a column: without extension types, run-end encoding and views of lists."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _extension_type(arrow)
    if pa.types.is_run_end_encoded(arrow):
        value = unwrapped_type(arrow.value_type)
        return pa.large_string() if pa.types.is_string_view(value) else value
    is_view = pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow)
    return pa.large_list(arrow.value_type) if is_view else arrow


def _extension_type(arrow: Any) -> pa.DataType:
    if arrow.extension_name == "arrow.bool8":
        return pa.bool_()
    if arrow.extension_name == "arrow.fixed_shape_tensor":
        if arrow.permutation is not None and [*arrow.permutation] != sorted(arrow.permutation):
            return arrow
        whole = arrow.value_type
        for size in reversed(arrow.shape):
            whole = pa.list_(whole, size)
        return whole
    return unwrapped_type(arrow.storage_type)


def _unwrapped(target: pa.DataType, arrays: Sequence[pa.Array], _place: str, _row: int) -> pa.Array:
    (array,) = arrays
    while array.type != target:
        arrow = array.type
        if isinstance(arrow, pa.BaseExtensionType):
            shape = arrow.shape if arrow.extension_name == "arrow.fixed_shape_tensor" else ()
            array = _as_tensor(array.storage, shape) if len(shape) > 1 else array.storage
        elif pa.types.is_run_end_encoded(arrow):
            array = _decoded(array)
        elif pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow):
            array = _in_order(array)
        else:
            array = array.cast(target)
    return array


def _in_order(views: pa.Array) -> pa.Array:
    """Views of lists as lists, one after the other; Arrow's own cast makes invalid ones."""
    missing = views.is_null()
    sizes = np.where(missing.to_numpy(zero_copy_only=False), 0, views.sizes.to_numpy())
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    return pa.LargeListArray.from_arrays(ends, views.flatten(), mask=missing if views.null_count else None)


def _as_tensor(lists: pa.Array, shape: Sequence[int]) -> pa.Array:
    size = prod(shape)
    array = lists.values.slice(lists.offset * size, len(lists) * size)
    for length in reversed(shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, length)
    mask = lists.is_null() if lists.null_count else None
    return pa.FixedSizeListArray.from_arrays(array, shape[0], mask=mask)


def _decoded(array: pa.Array) -> pa.Array:
    """The value of each row of a run-end encoded array; Arrow has no function for every type of value."""
    ends = np.asarray(array.run_ends.to_numpy(zero_copy_only=False))
    rows = np.arange(array.offset, array.offset + len(array))
    return without_views(array.values).take(pa.array(np.searchsorted(ends, rows, side="right")))


# Views of strings and bytes


def is_view(arrow: pa.DataType) -> bool:
    """Whether values of this type are views."""
    return bool(pa.types.is_string_view(arrow) or pa.types.is_binary_view(arrow))


def without_null_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch with the null slots of its views zeroed; columns without views or without nulls are not copied.

    Validation skips null slots, but kernels of Arrow follow the sizes and addresses in them.
    """
    arrays = batch.columns
    cleared = [_cleared(array) for array in arrays]
    if all(new is old for new, old in zip(cleared, arrays)):
        return batch
    return pa.RecordBatch.from_arrays(cleared, schema=batch.schema)


def without_views(array: pa.Array) -> pa.Array:
    """The same values as plain strings or bytes, because few kernels take views."""
    arrow = array.type
    if pa.types.is_dictionary(arrow) and is_view(arrow.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, without_views(array.dictionary), ordered=arrow.ordered)
    if not is_view(arrow):
        return array
    return array.cast(pa.large_string() if pa.types.is_string_view(arrow) else pa.large_binary())


def _cleared(array: pa.Array) -> pa.Array:
    arrow = array.type
    if is_view(arrow):
        return _zeroed(array) if array.null_count else array
    if pa.types.is_dictionary(arrow):
        values = array.dictionary
        cleared = _cleared(values)
        same = cleared is values
        return array if same else pa.DictionaryArray.from_arrays(array.indices, cleared, ordered=arrow.ordered)
    return _cleared_children(array) if _has_views(arrow) else array


def _cleared_children(array: pa.Array) -> pa.Array:
    """Lists, maps and structs of views; other nested types are left as they are, because polars cannot import them."""
    arrow = array.type
    if pa.types.is_struct(arrow):
        children = [_cleared(array.field(index)) for index in range(arrow.num_fields)]
        return pa.StructArray.from_arrays(children, fields=[*arrow], mask=array.is_null())
    if pa.types.is_fixed_size_list(arrow):
        buffers = array.buffers()[:1]
    elif pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_map(arrow):
        buffers = array.buffers()[:2]
    else:
        return array
    children = [_cleared(array.values)]
    return pa.Array.from_buffers(arrow, len(array), buffers, array.null_count, array.offset, children)


def _has_views(arrow: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow):
        return _has_views(arrow.value_type)
    return is_view(arrow) or any(_has_views(arrow.field(index).type) for index in range(arrow.num_fields))


def _zeroed(array: pa.Array) -> pa.Array:
    """A copy of the views, with zeros in the null slots."""
    validity, views, *texts = array.buffers()
    end = array.offset + len(array)
    rows = np.frombuffer(views, np.uint8, end * _VIEW_BYTES).reshape(end, _VIEW_BYTES).copy()
    rows[array.offset :][array.is_null().to_numpy(zero_copy_only=False)] = 0
    buffers = [validity, pa.py_buffer(rows), *texts]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)
