"""Columns of wrapped types as the types that hold their values: extension types, run-end encoding, views of lists."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.sources.scan import Scan, Unit
from tensorstash.sources.views import without_views

Change = Callable[[pa.Array, int], pa.Array]  # of an array whose first row, counted among the loaded rows, is given


def stored(scanned: Scan) -> Scan:
    """The scan with each column in the type that holds its values."""
    plain = {field.name: plain_type(field.type) for field in scanned.schema}
    types = {field.name: plain[field.name] for field in scanned.schema if plain[field.name] != field.type}
    return changed(scanned, types, {name: partial(_plain, arrow) for name, arrow in types.items()})


def changed(scanned: Scan, types: Mapping[str, pa.DataType], changes: Mapping[str, Change]) -> Scan:
    """The scan with some columns of other types, which `changes` make of those of the source."""
    if not types:
        return scanned
    schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in scanned.schema])
    units = tuple(replace(unit, read=partial(_read, unit, changes)) for unit in scanned.units)
    return replace(scanned, schema=schema, units=units)


def _read(unit: Unit, changes: Mapping[str, Change], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    row = unit.start
    for batch in unit.read(names):
        arrays = [changes[name](one, row) if name in changes else one for name, one in zip(names, batch.columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))
        row += batch.num_rows


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type that holds the values of another one, which may be that type itself."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _stored_type(arrow)
    if pa.types.is_run_end_encoded(arrow):
        value = plain_type(arrow.value_type)
        return pa.large_string() if pa.types.is_string_view(value) else value
    is_view = pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow)
    return pa.large_list(arrow.value_type) if is_view else arrow


def _stored_type(arrow: Any) -> pa.DataType:
    if arrow.extension_name == "arrow.bool8":
        return pa.bool_()
    if arrow.extension_name == "arrow.fixed_shape_tensor":
        if arrow.permutation is not None and [*arrow.permutation] != sorted(arrow.permutation):
            return arrow
        whole = arrow.value_type
        for size in reversed(arrow.shape):
            whole = pa.list_(whole, size)
        return whole
    return plain_type(arrow.storage_type)


def _plain(target: pa.DataType, array: pa.Array, _row: int) -> pa.Array:
    """The same values in their plain type."""
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
    """Flat lists as lists of lists."""
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
