"""Numbers, times and decimals from Arrow to numpy, exactly."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from tensorstash.columns.arrays import filled, nulls
from tensorstash.columns.column import Column
from tensorstash.common.dtypes import DTYPES, Bools, from_bfloat16
from tensorstash.common.text import counted
from tensorstash.errors import DataError
from tensorstash.sources.storage import decoded

_EXACT_DIGITS = 15  # a decimal of so many digits comes back from the nearest float64
_EXACT_POWERS = 22  # 10**22 is the highest power of ten that float64 holds
_MOST_DIGITS = 76


def values(arrays: Sequence[pa.Array], column: Column, place: str) -> tuple[NDArray[Any], int]:
    """The rows of a column of numbers or times, and the number of nulls in them.

    They are `(n, *column.shape)`, cast to the column's dtype; bfloat16 as its bits. `arrays` are the column's members,
    one array each; `place` is their position in the source, for errors.
    All work is done in numpy: torch would split each piece over its own threads, which wait for one another when other
    threads use the cores.
    """
    if len(column.members) == 1:
        out, count = _member(arrays[0], column, column.members[0], place)
        return out.reshape(-1, *column.shape), count
    out, count = np.empty((len(arrays[0]), len(arrays)), DTYPES[column.dtype][1]), 0
    for k, (array, member) in enumerate(zip(arrays, column.members)):
        out[:, k], more = _member(array, column, member, place)
        count += more
    return out, count


def _member(array: pa.Array, column: Column, name: str, place: str) -> tuple[NDArray[Any], int]:
    """The values of a member, and the number of its nulls."""
    flat = flatten(array, name, place)
    if pa.types.is_decimal(flat.type):
        flat = _from_decimals(flat, column, name, place)
    count, fill, holes = flat.null_count, column.fill, nulls(flat)
    if count and fill is None and not column.dtype.is_floating_point:
        raise _null_error(column, name, count, place)
    raw = filled(flat, 0)  # without nulls the memory of Arrow: never written to
    if fill is not None and raw.dtype.kind == "f":
        unknown = np.isnan(raw)
        holes = unknown if holes is None else holes | unknown
        raw = np.where(unknown, raw.dtype.type(0), raw)
    out = _cast(raw, column, name, place)
    if holes is None:
        return out, count
    value = np.asarray(math.nan if fill is None else fill)
    value = to_bfloat16(value.astype(np.float32)) if column.dtype == torch.bfloat16 else value.astype(out.dtype)
    return np.where(holes, value, out), count


def _null_error(column: Column, name: str, nulls: int, place: str) -> DataError:
    # an expression is shown by a text of polars that is no argument of ts.column
    source = "..." if "(" in name else repr(name if len(column.members) == 1 else [*column.members])
    left, right = (f"static=(frame, {{{name!r}: ", "})") if place.endswith(" of static=") else ("", "")
    as_nan = f"Keep nulls as NaN, {left}ts.column({source}, dtype=torch.float32){right}, or store"
    return DataError(
        f"Integers, booleans and times have no missing value; column {name!r} has {counted(nulls, 'null')} in {place}. "
        f"{as_nan if column.kind == 'number' else 'Store'} a value that counts as data: {left}ts.column({source}, "
        f"fill=...){right}."
    )


def to_bfloat16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16; a tie goes to the one with an even last bit."""
    bits = array.view(np.uint32)
    near = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), near)


def flatten(array: pa.Array, name: str, place: str) -> pa.Array:
    """The numbers of an array in row order, without its dictionaries, lists and time types."""
    array = decoded(array)
    while pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        if array.null_count:
            raise DataError(
                f"A list column has a list in every row; column {name!r} has {counted(array.null_count, 'null list')} "
                f"in {place}. Fill them before loading."
            )
        array = decoded(array.values.slice(array.offset * size, len(array) * size))
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def _cast(raw: NDArray[Any], column: Column, name: str, place: str) -> NDArray[Any]:
    """A cast between floating-point types rounds; every other cast must keep every value."""
    dtype = column.dtype
    plain = np.dtype("float32" if dtype == torch.bfloat16 else DTYPES[dtype][1])
    out, lost = _plain_cast(raw, plain)
    if dtype == torch.bfloat16:
        # bfloat16 values are exact in float32, so a cast through it loses nothing
        single, out = out, to_bfloat16(out)
        back = from_bfloat16(out)
        further = np.isinf(back) & ~np.isinf(single) if raw.dtype.kind == "f" else back != single
        lost = further if lost is None else lost | further
    if lost is not None and lost.any():
        remedy = (
            "Times are kept as int64: leave those rows out with filter=, or count from a later moment."
            if column.name in ("__time", "__known")
            else "Choose a wider type: ts.column(..., dtype=...)."
        )
        raise DataError(
            f"A cast must keep the values; {raw[int(lost.argmax())].item()} in column {name!r} ({place}; "
            f"{counted(int(lost.sum()), 'such value')}) does not fit into {dtype}. {remedy}"
        )
    return out


def _plain_cast(raw: NDArray[Any], target: np.dtype[Any]) -> tuple[NDArray[Any], Bools | None]:
    """The result of the cast, and where it differs from the value; `None` if the cast is always exact."""
    if np.can_cast(raw.dtype, target, "safe") and raw.dtype.itemsize + target.itemsize < 16:  # int64 to float64 is not
        return raw.astype(target, copy=False), None
    if raw.dtype == target:
        return raw, None
    with np.errstate(invalid="ignore", over="ignore"):
        cast = raw.astype(target)
        if raw.dtype.kind == target.kind == "f":
            endless = np.isinf(cast)
            return cast, endless & ~np.isinf(raw) if endless.any() else None
        lost = (cast.astype(raw.dtype) != raw) | ((cast < 0) != (raw < 0))
    # near the limits of an integer type, a cast and its inverse may both saturate and hide a lost value
    floating, integer = (cast, raw) if target.kind == "f" else (raw, cast)
    if floating.dtype.kind == "f" and integer.dtype.kind in "iu":
        lost |= ~(np.abs(floating.astype(np.float64)) <= np.iinfo(integer.dtype).max + 1.0)
        lost |= floating.astype(np.float64) == np.iinfo(integer.dtype).max + 1.0
    return cast, lost


# Decimals


def _from_decimals(array: pa.Array, column: Column, name: str, place: str) -> pa.Array:
    """The nearest float64, or for a column of integers the equal int64; an error if digits would be lost.

    Arrow's own cast multiplies by a power of ten that is not exact: it makes 0.35000000000000003 of 0.35.
    """
    if not column.dtype.is_floating_point:
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid:
            raise DataError(
                f"A cast must keep the values; column {name!r} ({place}) has a decimal that is no integer of 64 bits. "
                "Choose a floating type: ts.column(..., dtype=...)."
            ) from None
    few, scale = array.type.precision <= _EXACT_DIGITS, array.type.scale
    if few and 0 <= scale <= _EXACT_POWERS:  # one division of numbers that float64 holds exactly gives the nearest one
        exact = array.cast(pa.decimal128(array.type.precision, scale))
        whole = pa.decimal128(_EXACT_DIGITS, 0)
        digits = pa.Array.from_buffers(whole, len(exact), exact.buffers(), offset=exact.offset)
        return pc.divide(digits.cast(pa.int64()).cast(pa.float64()), 10.0**scale)
    floats = array.cast(pa.string()).cast(pa.float64())
    if column.digits and not few:
        _check_digits(array, floats, name, place)
    return floats


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
            f"column {name!r} ({place}; {counted(int(np.count_nonzero(lost)), 'such value')}) does not. Accept the "
            "nearest value: ts.column(..., dtype=torch.float64)."
        )
