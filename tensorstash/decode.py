"""One Arrow array -> the values of one stretch of a column. Where the stretch lives is not known here."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.utils.dlpack
from numpy.typing import NDArray

from tensorstash.errors import DataError
from tensorstash.schema import Column, Fill

Number = int | float


@dataclass(slots=True)
class Stats:
    """What is counted while decoding, so that nobody has to read the data again to know it."""

    nulls: int = 0  # nulls in the source
    missing: int = 0  # missing values in the stash: NaN, or code -1
    low: Number | None = None
    high: Number | None = None

    def add(self, other: "Stats") -> None:
        """Count what was counted elsewhere."""
        self.nulls += other.nulls
        self.missing += other.missing
        lows = [x for x in (self.low, other.low) if x is not None]
        highs = [x for x in (self.high, other.high) if x is not None]
        self.low, self.high = min(lows, default=None), max(highs, default=None)


@dataclass(slots=True)
class Vocabulary:
    """The names behind codes, in order of first appearance."""

    fill: str | None = None
    codes: dict[Hashable, int] = field(default_factory=dict)

    def encode(self, indices: NDArray[np.int32], dictionary: pa.Array) -> NDArray[np.int32]:
        """Codes of this vocabulary for indices into a dictionary that holds only names in use; -1 for null."""
        names = dictionary.to_pylist()
        local = [-1 if name is None else self.codes.setdefault(name, len(self.codes)) for name in names]
        missing = -1
        if self.fill is not None and ((indices < 0).any() or None in names):
            missing = self.codes.setdefault(self.fill, len(self.codes))
        table = np.array([*local, -1], np.int32)  # index -1 finds the last
        table[table < 0] = missing
        return table[indices]

    def stats(self, codes: NDArray[np.int32], nulls: int) -> Stats:
        """What there is to know of codes of this vocabulary."""
        low, high, _ = _summary(codes[codes >= 0])
        return Stats(nulls, int(np.count_nonzero(codes < 0)), low, high)


def indices(array: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Text or integers as `(n,)` indices into the dictionary of their distinct values, in order of appearance."""
    if pa.types.is_dictionary(array.type):
        array = _plain_text(array)
        used, places = np.unique(_int32(array.indices), return_index=True)
        used = used[np.argsort(places, kind="stable")]
        used = used[used >= 0]
        compact = np.full(len(array.dictionary) + 1, -1, np.int32)
        compact[used] = np.arange(len(used), dtype=np.int32)
        return compact[_int32(array.indices)], array.dictionary.take(pa.array(used))
    encoded = pc.dictionary_encode(_plain_text(array))
    return _int32(encoded.indices), encoded.dictionary


def _plain_text(array: pa.Array) -> pa.Array:
    """The same values without the string views that few kernels take."""
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _int32(array: pa.Array) -> NDArray[np.int32]:
    filled = pc.fill_null(array.cast(pa.int32()), -1)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def values(arrays: list[pa.Array], column: Column, place: str) -> tuple[torch.Tensor, Stats]:
    """The rows of a column of numbers or times, `(n, *column.shape)`, cast to the column's dtype.

    `arrays` are the column's members, one array each; `place` is where in the source they stand.
    """
    stats = Stats()
    if len(column.members) == 1:
        out = _member(arrays[0], column, column.members[0], place, stats).reshape(-1, *column.shape)
    else:
        out = torch.empty(len(arrays[0]), len(arrays), dtype=column.dtype)
        for k, (array, member) in enumerate(zip(arrays, column.members)):
            out[:, k] = _member(array, column, member, place, stats)
    stats.low, stats.high, stats.missing = _summary((out.float() if column.dtype == torch.bfloat16 else out).numpy())
    return out, stats


def _member(array: pa.Array, column: Column, name: str, place: str, stats: Stats) -> torch.Tensor:
    """The values of one source column, flat, with what is missing filled in."""
    flat = _flatten(array, name, place)
    missing, fill = flat.null_count, column.fill
    stats.nulls += missing
    if missing and fill is None and not column.dtype.is_floating_point:
        raise DataError(
            f"Integers, booleans and times have no missing value; column {name!r} has {missing:,} nulls in {place}. "
            f"Say what to store, ts.column({name!r}, fill=...), or load it as floating: ts.column({name!r}, dtype=...)."
        )
    floating = column.dtype.is_floating_point
    holes = torch.from_numpy(flat.is_null().to_numpy(zero_copy_only=False)) if missing and floating else None
    tensor = _tensor(pc.fill_null(flat, _scalar(0 if floating else fill, flat.type, name)) if missing else flat)
    if column.dtype == torch.bfloat16 and tensor.dtype == torch.uint16:
        tensor = tensor.view(torch.bfloat16)
    out = _cast(tensor, column.dtype, name, place)
    if fill is not None and floating:
        holes = torch.isnan(out) if holes is None else holes | torch.isnan(out)
    return out if holes is None else out.masked_fill(holes, math.nan if fill is None else float(fill))


def _scalar(fill: Fill | None, arrow: pa.DataType, name: str) -> pa.Scalar:
    try:
        return pa.scalar(fill).cast(arrow)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"fill= must be a value of its column; {fill!r} is none of {name!r} ({arrow}).") from error


def _flatten(array: pa.Array, name: str, place: str) -> pa.Array:
    """The numbers of an array, row after row: taken out of dictionaries, lists and times."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    while pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        if array.null_count:
            raise DataError(
                f"A list column has a list in every row; column {name!r} has {array.null_count:,} null lists in "
                f"{place}. Fill them before loading."
            )
        array = array.values.slice(array.offset * size, len(array) * size)
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def _tensor(array: pa.Array) -> torch.Tensor:
    """The same memory as a tensor (a copy for booleans, which Arrow keeps as bits); never written to."""
    if pa.types.is_boolean(array.type) or not len(array):
        return torch.from_numpy(np.array(array.to_numpy(zero_copy_only=False)))
    return torch.utils.dlpack.from_dlpack(array)


def _cast(tensor: torch.Tensor, dtype: torch.dtype, name: str, place: str) -> torch.Tensor:
    """From floating to floating rounds; every other cast must keep every value."""
    if tensor.dtype == dtype:
        return tensor
    out = tensor.to(dtype)
    if tensor.dtype.is_floating_point and dtype.is_floating_point:
        lost = torch.isinf(out) & ~torch.isinf(tensor)
    else:
        lost = out.to(tensor.dtype) != tensor
        if tensor.dtype == torch.int64 and dtype.is_floating_point:  # the way back saturates at the end of the range
            lost |= out.double() >= 2.0**63
    if bool(lost.any()):
        at = int(lost.to(torch.uint8).argmax())
        raise DataError(
            f"A cast must keep the values; {tensor[at].item()} in column {name!r} ({place}; {int(lost.sum()):,} such "
            f"values) does not fit into {dtype}. Choose a wider type: ts.column({name!r}, dtype=...)."
        )
    return out


def _summary(array: NDArray[Any]) -> tuple[Number | None, Number | None, int]:
    """The least and the greatest value, and the number of NaN, in as few passes as there can be."""
    if not array.size:
        return None, None, 0
    low, high, missing = array.min(), array.max(), 0
    if low != low:  # noqa: PLR0124  a NaN anywhere makes the minimum one
        missing = int(np.isnan(array).sum())
        low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return (None, None, missing) if missing == array.size else (low.item(), high.item(), missing)
