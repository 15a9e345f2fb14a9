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
from tensorstash.schema import DTYPES, Column, Fill

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

    @property
    def names(self) -> list[Any]:
        """All names by their codes; the fill is one of them, also where nothing was missing."""
        return list(self.codes) if self.fill is None else list(dict.fromkeys([*self.codes, self.fill]))

    def encode(self, indices: NDArray[np.int32], dictionary: pa.Array) -> tuple[NDArray[np.int32], Stats]:
        """Codes of this vocabulary for indices into a dictionary that holds only names in use; -1 for null."""
        names = dictionary.to_pylist()
        local = [-1 if name is None else self.codes.setdefault(name, len(self.codes)) for name in names]
        codes = np.array([*local, -1], np.int32)[indices]  # index -1 finds the last
        nulls = int(np.count_nonzero(codes < 0))
        if nulls and self.fill is not None:
            codes[codes < 0] = self.codes.setdefault(self.fill, len(self.codes))
        low, high, _ = _summary(codes[codes >= 0])
        return codes, Stats(nulls, int(np.count_nonzero(codes < 0)), low, high)


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
    nulls, fill, floating = flat.null_count, column.fill, column.dtype.is_floating_point
    stats.nulls += nulls
    if nulls and fill is None and not floating:
        raise DataError(
            f"Integers, booleans and times have no missing value; column {name!r} has {nulls:,} nulls in {place}. "
            f"Say what to store, ts.column({name!r}, fill=...), or load it as floating: ts.column({name!r}, dtype=...)."
        )
    holes = flat.is_null().to_numpy(zero_copy_only=False) if nulls else None
    tensor = _tensor(pc.fill_null(flat, pa.scalar(0).cast(flat.type)) if nulls else flat)
    tensor = tensor.view(torch.bfloat16) if column.bits else tensor
    if fill is not None and tensor.dtype.is_floating_point:
        unknown = torch.isnan(tensor)
        holes = unknown.numpy() if holes is None else holes | unknown.numpy()
        tensor = tensor.masked_fill(unknown, 0)
    out = _cast(tensor, column.dtype, name, place)
    return out if holes is None else _filled(out, holes, math.nan if fill is None else fill)


def _filled(out: torch.Tensor, holes: NDArray[np.bool_], fill: Fill) -> torch.Tensor:
    """A copy with the fill in the holes; torch cannot do it for all unsigned integers, numpy not for bfloat16."""
    if out.dtype == torch.bfloat16:
        return out.masked_fill(torch.from_numpy(holes), float(fill))
    values = out.numpy()
    return torch.from_numpy(np.where(holes, np.asarray(fill).astype(values.dtype), values))


def _flatten(array: pa.Array, name: str, place: str) -> pa.Array:
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
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _tensor(array: pa.Array) -> torch.Tensor:
    """The same memory as a tensor (a copy for booleans, which Arrow keeps as bits); never written to."""
    if pa.types.is_boolean(array.type) or not len(array):
        return torch.from_numpy(np.array(array.to_numpy(zero_copy_only=False)))
    return torch.utils.dlpack.from_dlpack(array)


def _cast(tensor: torch.Tensor, dtype: torch.dtype, name: str, place: str) -> torch.Tensor:
    """From floating to floating rounds; every other cast must keep every value."""
    if tensor.dtype == dtype:
        return tensor
    if tensor.dtype.is_floating_point and dtype.is_floating_point:
        out = tensor.to(dtype)
        lost = (torch.isinf(out) & ~torch.isinf(tensor)).numpy()
    else:
        out, lost = _exact_cast(tensor, dtype)
    if lost.any():
        raise DataError(
            f"A cast must keep the values; {tensor[int(lost.argmax())].item()} in column {name!r} ({place}; "
            f"{int(lost.sum()):,} such values) does not fit into {dtype}. Choose a wider type: "
            f"ts.column({name!r}, dtype=...)."
        )
    return out


def _exact_cast(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, NDArray[np.bool_]]:
    """Between integers, or to or from them: the result, and where it is another value. By numpy, whose casts wrap."""
    if torch.bfloat16 in (tensor.dtype, dtype):
        # every bfloat16 is a float32, and a float32 that is a bfloat16 comes back from it
        single, lost = _exact_cast(tensor.float() if tensor.dtype == torch.bfloat16 else tensor, _numpy_like(dtype))
        out = single.to(dtype)
        return out, lost | (out.float() != single.float()).numpy()
    raw = tensor.numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        cast = raw.astype(DTYPES[dtype][1])
        lost = (cast.astype(raw.dtype) != raw) | ((cast < 0) != (raw < 0))
    # at the end of an integer's range the way there or back may saturate, and hide that a value was lost
    floating, integer = (cast, raw) if dtype.is_floating_point else (raw, cast)
    if floating.dtype.kind == "f" and integer.dtype.kind in "iu":
        lost |= ~(np.abs(floating.astype(np.float64)) <= np.iinfo(integer.dtype).max + 1.0)
        lost |= floating.astype(np.float64) == np.iinfo(integer.dtype).max + 1.0
    return torch.from_numpy(cast), lost


def _numpy_like(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _summary(array: NDArray[Any]) -> tuple[Number | None, Number | None, int]:
    """The least and the greatest value, and the number of NaN, in as few passes as there can be."""
    if not array.size:
        return None, None, 0
    low, high, missing = array.min(), array.max(), 0
    if low != low:  # noqa: PLR0124  a NaN anywhere makes the minimum one
        missing = int(np.isnan(array).sum())
        low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return (None, None, missing) if missing == array.size else (low.item(), high.item(), missing)
