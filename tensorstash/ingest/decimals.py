"""Decimals from Arrow as floats or integers, each correctly rounded."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.column import Column
from tensorstash.errors import DataError

_EXACT_DIGITS = 15  # a decimal of so many digits comes back from the nearest float64
_EXACT_POWERS = 22  # 10**22 is the highest power of ten that float64 holds
_MOST_DIGITS = 76


def from_decimals(array: pa.Array, column: Column, name: str, place: str) -> pa.Array:
    """The nearest float64, or for a column of integers the equal int64; an error if digits would be lost.

    Arrow's own cast multiplies by a power of ten that is not exact: it makes 0.35000000000000003 of 0.35.
    """
    if not column.dtype.is_floating_point:
        return _integers(array, name, place)
    floats = _few_digits(array) if _is_small(array.type) else array.cast(pa.string()).cast(pa.float64())
    if column.digits and array.type.precision > _EXACT_DIGITS:
        _check_digits(array, floats, name, place)
    return floats


def _is_small(arrow: pa.DataType) -> bool:
    return bool(arrow.precision <= _EXACT_DIGITS and 0 <= arrow.scale <= _EXACT_POWERS)


def _few_digits(array: pa.Array) -> pa.Array:
    """The nearest float64 by one division, whose integer and power of ten float64 holds exactly."""
    array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    words = np.frombuffer(array.buffers()[1], "<i8") if len(array) else np.empty(0, np.int64)
    low = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(low / 10.0**array.type.scale, mask=mask)


def _integers(array: pa.Array, name: str, place: str) -> pa.Array:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"A cast must keep the values; column {name!r} ({place}) has a decimal that is no integer of 64 bits. "
            "Choose a floating type: ts.column(..., dtype=...)."
        ) from error


def _check_digits(array: pa.Array, floats: pa.Array, name: str, place: str) -> None:
    """Refuse a decimal that differs from the shortest text of its float64."""
    arrow = array.type
    # the shortest text has up to 17 digits, which may be two more than the decimal has after its point
    wide = pa.decimal256(_MOST_DIGITS, min(arrow.scale + 3, _MOST_DIGITS))
    try:
        lost = np.asarray(pc.not_equal(floats.cast(pa.string()).cast(wide), array.cast(wide)).fill_null(False))
    except pa.ArrowInvalid:  # more digits than the widest decimal has
        pairs = zip(array.to_pylist(), floats.to_pylist())
        lost = np.array([exact is not None and Decimal(repr(near)) != exact for exact, near in pairs])
    if lost.any():
        raise DataError(
            f"Decimals are stored as float64 if they keep their digits; {array[int(np.argmax(lost))].as_py()} in "
            f"column {name!r} ({place}; {int(np.count_nonzero(lost)):,} such values) does not. Accept the nearest "
            "value: ts.column(..., dtype=torch.float64)."
        )
