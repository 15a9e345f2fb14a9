"""Arrays of views (`string_view`, `binary_view`): null slots cleared, and conversion to plain strings and bytes."""

import numpy as np
import pyarrow as pa

_BYTES = 16  # per view: the size, then the text itself or its location


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
        own = array.buffers()[:1]
    elif pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_map(arrow):
        own = array.buffers()[:2]
    else:
        return array
    children = [_cleared(array.values)]
    return pa.Array.from_buffers(arrow, len(array), own, array.null_count, array.offset, children)


def _has_views(arrow: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow):
        return _has_views(arrow.value_type)
    return is_view(arrow) or any(_has_views(arrow.field(index).type) for index in range(arrow.num_fields))


def _zeroed(array: pa.Array) -> pa.Array:
    """A copy of the views, with zeros in the null slots."""
    validity, views, *texts = array.buffers()
    end = array.offset + len(array)
    rows = np.frombuffer(views, np.uint8, end * _BYTES).reshape(end, _BYTES).copy()
    rows[array.offset :][array.is_null().to_numpy(zero_copy_only=False)] = 0
    buffers = [validity, pa.py_buffer(rows), *texts]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)
