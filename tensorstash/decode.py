"""One Arrow array -> the values of one stretch of a column. Where the stretch lives is not known here."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from tensorstash.arrays import Bools, Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.schema import DTYPES, Column, Fill, is_text

Number = int | float


@dataclass(slots=True)
class Stats:
    """What is counted while decoding, so that nobody has to read the data again to know it."""

    nulls: int = 0  # nulls in the source
    missing: int = 0  # missing values in the stash: NaN, or code -1
    unknown: int | None = None  # values that are not in the vocabulary that was given
    low: Number | None = None
    high: Number | None = None

    def add(self, other: "Stats") -> None:
        """Count what was counted elsewhere."""
        self.nulls += other.nulls
        self.missing += other.missing
        if other.unknown is not None:
            self.unknown = (self.unknown or 0) + other.unknown
        lows = [x for x in (self.low, other.low) if x is not None]
        highs = [x for x in (self.high, other.high) if x is not None]
        self.low, self.high = min(lows, default=None), max(highs, default=None)


@dataclass(frozen=True, slots=True)
class Piece:
    """Text or integers: `(n,)` indices into their distinct values, which are in order of appearance; -1 for null."""

    indices: Int32s
    names: list[Any]
    firsts: Int64s  # where in the piece each of them appears first


def piece_of(array: pa.Array) -> Piece:
    """The distinct values of an array of text or integers, and which of them stands in each row."""
    array = _plain_text(array)
    if not pa.types.is_dictionary(array.type):
        array = pc.dictionary_encode(array)
    places = _int32(array.indices)
    firsts = np.full(len(array.dictionary) + 1, len(places))
    firsts[places[::-1]] = np.arange(len(places) - 1, -1, -1)  # the last that is written stays; -1 finds the last
    used = np.flatnonzero(firsts[:-1] < len(places))
    used = used[np.argsort(firsts[used])]
    if np.array_equal(used, np.arange(len(array.dictionary))):
        return Piece(places, array.dictionary.to_pylist(), firsts[:-1])
    compact = np.full(len(firsts), -1, np.int32)
    compact[used] = np.arange(len(used), dtype=np.int32)
    return Piece(compact[places], array.dictionary.take(pa.array(used)).to_pylist(), firsts[used])


class Vocabulary:
    """The names behind codes. Threads bring pieces in any order; at the end `renumbering` puts the names in order."""

    def __init__(self, fill: str | None = None) -> None:
        """`fill` is the name that null gets."""
        self.fill = fill
        self._codes: dict[Hashable, int] = {}
        self._rows: list[int] = []  # in which row of the source each name appears first, by codes
        self._lock = Lock()

    def encode(self, piece: Piece, start: int) -> tuple[Int32s, Stats]:
        """Codes for the rows `start, start + 1, ...`, in order of appearance among the pieces so far; -1 for null."""
        with self._lock:
            local = [self._code(name, start + at) for name, at in zip(piece.names, piece.firsts.tolist())]
        codes = piece.indices if local == [*range(len(local))] else np.array([*local, -1], np.int32)[piece.indices]
        nulls = int(np.count_nonzero(codes < 0))
        if nulls and self.fill is not None:
            empty = codes < 0
            with self._lock:
                code = self._code(self.fill, start + int(empty.argmax()))
            return np.where(empty, np.int32(code), codes), Stats(nulls)
        return codes, Stats(nulls, nulls)

    def _code(self, name: Hashable, row: int) -> int:
        if name is None:
            return -1
        code = self._codes.setdefault(name, len(self._codes))
        if code == len(self._rows):
            self._rows.append(row)
        elif row < self._rows[code]:
            self._rows[code] = row
        return code

    def renumbering(self) -> Int32s | None:
        """`(names + 1,)`, what each code, and -1 as the last, becomes, so that codes follow the source.

        From then on `names` follows it too. `None` if nothing changes.
        """
        order = np.argsort(np.array(self._rows, np.int64))
        if np.array_equal(order, np.arange(len(order))):
            return None
        names, changed = [*self._codes], np.full(len(order) + 1, -1, np.int32)
        changed[order] = np.arange(len(order), dtype=np.int32)
        self._codes = {names[old]: new for new, old in enumerate(order.tolist())}
        self._rows = [self._rows[old] for old in order.tolist()]
        return changed

    @property
    def names(self) -> list[Any]:
        """All names by their codes; the fill is one of them, also where nothing was missing."""
        return list(self._codes) if self.fill is None else list(dict.fromkeys([*self._codes, self.fill]))

    @property
    def highest(self) -> int | None:
        """The highest code that some row has; the lowest is 0."""
        return len(self._codes) - 1 if self._codes else None


def count_codes(codes: Int32s) -> Stats:
    """What is to be known of codes: how many are -1, and the least and the greatest of the others."""
    known = codes[codes >= 0]
    missing = len(codes) - len(known)
    low, high = (int(known.min()), int(known.max())) if len(known) else (None, None)
    return Stats(missing, missing, low=low, high=high)


def _plain_text(array: pa.Array) -> pa.Array:
    """The same values without the string views that few kernels take."""
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _int32(array: pa.Array) -> Int32s:
    filled = pc.fill_null(array.cast(pa.int32()), -1)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def values(arrays: list[pa.Array], column: Column, place: str) -> tuple[NDArray[Any], Stats]:
    """The rows of a column of numbers or times, `(n, *column.shape)`, cast to the column's dtype; bfloat16 as its bits.

    `arrays` are the column's members, one array each; `place` is where in the source they stand. All of it is numpy's:
    torch would divide each piece among threads of its own, which wait for one another where cores are shared.
    """
    stats = Stats()
    if len(column.members) == 1:
        out = _member(arrays[0], column, column.members[0], place, stats).reshape(-1, *column.shape)
    else:
        out = np.empty((len(arrays[0]), len(arrays)), DTYPES[column.dtype][1])
        for k, (array, member) in enumerate(zip(arrays, column.members)):
            out[:, k] = _member(array, column, member, place, stats)
    plain = out
    if column.dtype == torch.bfloat16:
        plain = _from_bfloat16(out)
    elif column.dtype == torch.float16:
        plain = out.astype(np.float32)  # processors cannot compare halves
    stats.low, stats.high, stats.missing = _summary(plain)
    return out, stats


def _member(array: pa.Array, column: Column, name: str, place: str, stats: Stats) -> NDArray[Any]:
    """The values of one source column, flat, with what is missing filled in."""
    if column.mask:
        return _valid(array, column, name, place)
    flat = _flatten(array, column, name, place)
    nulls, fill = flat.null_count, column.fill
    stats.nulls += nulls
    if nulls and fill is None and not column.dtype.is_floating_point:
        raise DataError(
            f"Integers, booleans and times have no missing value; column {name!r} has {nulls:,} nulls in {place}. "
            f"Say what to store, ts.column(..., fill=...), or load it as floating: ts.column(..., dtype=...)."
        )
    holes = flat.is_null().to_numpy(zero_copy_only=False) if nulls else None
    raw = _numpy(pc.fill_null(flat, pa.scalar(0).cast(flat.type)) if nulls else flat)
    if column.bits and column.dtype == torch.bfloat16 and holes is None and fill is None:
        return raw
    raw = _from_bfloat16(raw) if column.bits else raw
    if fill is not None and raw.dtype.kind == "f":
        unknown = np.isnan(raw)
        holes = unknown if holes is None else holes | unknown
        raw = np.where(unknown, raw.dtype.type(0), raw)
    out = _cast(raw, column, name, place)
    return out if holes is None else np.where(holes, _stored(math.nan if fill is None else fill, column.dtype), out)


def _valid(array: pa.Array, column: Column, name: str, place: str) -> NDArray[Any]:
    """Where one source column has a value, flat."""
    if is_text(array.type):
        plain = _plain_text(array)
        if pa.types.is_dictionary(plain.type):
            plain = plain.dictionary_decode() if plain.dictionary.null_count else plain.indices
        return np.asarray(plain.is_valid().to_numpy(zero_copy_only=False))
    flat = _flatten(array, column, name, place)
    valid = np.asarray(flat.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_floating(flat.type) or column.bits:
        raw = _numpy(pc.fill_null(flat, pa.scalar(0).cast(flat.type)))
        valid &= ~np.isnan(_from_bfloat16(raw) if column.bits else raw)
    return valid


def _stored(fill: Fill, dtype: torch.dtype) -> NDArray[Any]:
    if dtype == torch.bfloat16:
        return _to_bfloat16(np.array(fill, np.float32))
    return np.asarray(fill).astype(DTYPES[dtype][1])


def _to_bfloat16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16, of two equally near ones that with an even last bit."""
    bits = array.view(np.uint32)
    near = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), near)


def _from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _flatten(array: pa.Array, column: Column, name: str, place: str) -> pa.Array:
    """The numbers of an array, row after row: taken out of dictionaries, lists and times."""
    array = _plain(array)
    while pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        if array.null_count:
            raise DataError(
                f"A list column has a list in every row; column {name!r} has {array.null_count:,} null lists in "
                f"{place}. Fill them before loading."
            )
        array = _plain(array.values.slice(array.offset * size, len(array) * size))
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    if pa.types.is_temporal(array.type):
        if column.unit not in (None, "d", getattr(array.type, "unit", None)):
            array = _in_unit(array, column.unit, name, place)
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def _in_unit(array: pa.Array, unit: str, name: str, place: str) -> pa.Array:
    """The same times in another unit, exactly."""
    if pa.types.is_timestamp(array.type):
        target = pa.timestamp(unit, array.type.tz)
    elif pa.types.is_duration(array.type):
        target = pa.duration(unit)
    else:
        target = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"Times keep their exact value in the unit of the column; column {name!r} is {array.type} in {place}, and "
            f"cannot be held in {unit}: {error}. Write all files with one unit."
        ) from error


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numpy(array: pa.Array) -> NDArray[Any]:
    """The same memory as a numpy array (a copy for booleans, which Arrow keeps as bits); never written to."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _cast(raw: NDArray[Any], column: Column, name: str, place: str) -> NDArray[Any]:
    """From floating to floating rounds; every other cast must keep every value."""
    dtype = column.dtype
    plain = np.dtype("float32" if dtype == torch.bfloat16 else DTYPES[dtype][1])
    out, lost = _plain_cast(raw, plain)
    if dtype == torch.bfloat16:
        # every bfloat16 is a float32, and a float32 that is a bfloat16 comes back from it
        single, out = out, _to_bfloat16(out)
        back = _from_bfloat16(out)
        further = np.isinf(back) & ~np.isinf(single) if raw.dtype.kind == "f" else back != single
        lost = further if lost is None else lost | further
    if lost is not None and lost.any():
        remedy = (
            "Times are kept as int64: leave those rows out with filter=, or count from a later moment."
            if column.name == "__time"
            else "Choose a wider type: ts.column(..., dtype=...)."
        )
        raise DataError(
            f"A cast must keep the values; {raw[int(lost.argmax())].item()} in column {name!r} ({place}; "
            f"{int(lost.sum()):,} such values) does not fit into {dtype}. {remedy}"
        )
    return out


def _plain_cast(raw: NDArray[Any], target: np.dtype[Any]) -> tuple[NDArray[Any], Bools | None]:
    """The result, and where it is not the value that it should be; `None` if that cannot be."""
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
    # at the end of an integer's range the way there or back may saturate, and hide that a value was lost
    floating, integer = (cast, raw) if target.kind == "f" else (raw, cast)
    if floating.dtype.kind == "f" and integer.dtype.kind in "iu":
        lost |= ~(np.abs(floating.astype(np.float64)) <= np.iinfo(integer.dtype).max + 1.0)
        lost |= floating.astype(np.float64) == np.iinfo(integer.dtype).max + 1.0
    return cast, lost


def _summary(array: NDArray[Any]) -> tuple[Number | None, Number | None, int]:
    """The least and the greatest value, and the number of NaN, in as few passes as there can be."""
    if not array.size:
        return None, None, 0
    low, high, missing = array.min(), array.max(), 0
    if low != low:  # noqa: PLR0124  a NaN anywhere makes the minimum one
        missing = int(np.count_nonzero(array != array))  # noqa: PLR0124
        low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return (None, None, missing) if missing == array.size else (low.item(), high.item(), missing)
