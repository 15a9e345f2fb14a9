"""Arrays as the Arrow and Parquet writers of GluonTS store them: flat lists, with their shape in a column beside."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.sources.scan import SHAPE, Scan, Unit


def with_arrays(scanned: Scan) -> Scan:
    """The scan with lists of lists in place of flat lists and their shapes."""
    known = set(scanned.schema.names)
    shapes = {name: name + SHAPE for name in scanned.schema.names if name + SHAPE in known}
    if not shapes:
        return scanned
    fields = [field for field in scanned.schema if field.name not in shapes.values()]
    nested = [pa.large_list(pa.large_list(field.type.value_type)) if field.name in shapes else None for field in fields]
    schema = pa.schema([field if arrow is None else field.with_type(arrow) for field, arrow in zip(fields, nested)])
    units = tuple(replace(unit, read=partial(_read, scanned, unit, shapes)) for unit in scanned.units)
    return replace(scanned, schema=schema, units=units)


def _read(scanned: Scan, unit: Unit, shapes: Mapping[str, str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    inputs = list(dict.fromkeys([*names, *(shapes[name] for name in names if name in shapes)]))
    row = unit.start
    for batch in unit.read(inputs):
        own = dict(zip(inputs, batch.columns))

        def refuse(name: str, at: int, first: int = row) -> DataError:
            return DataError(
                f"An array of GluonTS has the two dimensions that its shape says; column {name!r} has not in row "
                f"{scanned.name_row(first + at)} of {scanned.label}. Write the file again."
            )

        arrays = [
            own[name] if name not in shapes else _array(own[name], own[shapes[name]], partial(refuse, name))
            for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))
        row += batch.num_rows


def _array(flat: pa.Array, shapes: pa.Array, refuse: Callable[[int], DataError]) -> pa.Array:
    """Lists of lists, variates x time."""
    known = flat.is_valid().to_numpy(zero_copy_only=False)
    two = known & (_sizes(shapes) == 2)
    pairs = np.zeros((len(flat), 2), np.int64)
    pairs[two] = pc.fill_null(shapes.filter(pa.array(two)).flatten(), -1).to_numpy().reshape(-1, 2)
    wrong = (known & ~two) | (pairs < 0).any(1) | (pairs.prod(1) != _sizes(flat))
    if wrong.any():
        raise refuse(int(np.argmax(wrong)))
    inner = pa.LargeListArray.from_arrays(_offsets(np.repeat(pairs[:, 1], pairs[:, 0])), flat.flatten())
    return pa.LargeListArray.from_arrays(_offsets(pairs[:, 0]), inner, mask=flat.is_null() if flat.null_count else None)


def _sizes(lists: pa.Array) -> Int64s:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(), np.int64)


def _offsets(sizes: Int64s) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
