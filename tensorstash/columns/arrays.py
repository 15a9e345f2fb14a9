"""Arrow arrays of numpy's values, and numpy's of Arrow's.

pyarrow's own conversions (`array`, `to_numpy`, and `scalar`, which `fill_null` calls) import pandas wherever it is
installed, which is slower than most loads.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.common.dtypes import Bools, Int64s


def of_numbers(values: NDArray[Any]) -> pa.Array:
    """Flat integers or floats as an Arrow array over the same memory, or booleans, of which Arrow makes bits."""
    plain = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(plain)])


def of_texts(texts: Sequence[str]) -> pa.Array:
    """Texts as an Arrow array of large strings."""
    encoded = [text.encode() for text in texts]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([*map(len, encoded)], out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def numbers(array: pa.Array) -> NDArray[Any]:
    """The values of an array of numbers or booleans, anything for null; numbers are not copied."""
    memory, start, stop = array.buffers()[1], array.offset, array.offset + len(array)
    if pa.types.is_boolean(array.type):
        return _bits(memory, start, stop)
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(memory, dtype, stop)[start:] if len(array) else np.empty(0, dtype)


def integers(times: pa.ChunkedArray) -> Int64s:
    """The integers that times are stored as, a copy."""
    if times.type.bit_width == 32:  # Arrow casts these to integers of their width only
        times = times.cast(pa.int32())
    return np.array(numbers(times.cast(pa.int64()).combine_chunks()))


def nulls(array: pa.Array) -> Bools | None:
    """Where an array is null; `None` for nowhere."""
    return ~_bits(array.buffers()[0], array.offset, array.offset + len(array)) if array.null_count else None


def filled(array: pa.Array, value: float) -> NDArray[Any]:
    """As `numbers`, with a value for null."""
    values, holes = numbers(array), nulls(array)
    return values if holes is None else np.where(holes, values.dtype.type(value), values)


def _bits(memory: pa.Buffer, start: int, stop: int) -> Bools:
    if start == stop:
        return np.empty(0, np.bool_)
    packed = np.frombuffer(memory, np.uint8)[start // 8 : -(-stop // 8)]
    return np.unpackbits(packed, bitorder="little")[start % 8 :][: stop - start].view(np.bool_)
