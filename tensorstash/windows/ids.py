"""The ids of windows, as callers give them."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, is_integer, shown
from tensorstash.common.dtypes import Int64s

Ids = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice


def check_ids(ids: int | Ids, count: int) -> Int64s:
    """Ids as int64 in `[0, count)`; negative ones count from the end, as in Python."""
    if isinstance(ids, slice):
        try:
            return np.arange(*ids.indices(count), dtype=np.int64)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"A slice of windows is from id to id, with a step that is not 0, got {shown(ids)}. To cut at a time "
                "write windows.split('2013-10-01')."
            ) from error
    numbers = ids_between(-count, count, ids)
    numbers[numbers < 0] += count
    return numbers


def ids_between(low: int, high: int, ids: Any, origin: str = "") -> Int64s:
    """Ids in `[low, high)` as int64, `(k,)`, in fresh memory; judged before they are cast, because that may wrap.

    `origin` ends the message of the `IndexError` for an id outside.
    """
    raw = array_of(ids, "Ids")
    are_integers = raw.ndim == 1 and raw.dtype.kind in "iu"
    if raw.ndim == 1 and raw.dtype.kind in "fO" and all(map(is_integer, ids)):  # none, or too large for 64 bits
        raw, are_integers = np.array([operator.index(k) for k in ids], object), True
    if isinstance(ids, (list, tuple)) and not {bool, np.bool_}.isdisjoint(map(type, ids)):  # numpy takes True as 1
        are_integers = False
    if not are_integers:
        given = f"{raw.dtype} of shape {raw.shape}" if hasattr(ids, "shape") else shown(ids)
        remedy = " For a mask write np.flatnonzero(mask)." if raw.ndim == 1 and raw.dtype.kind == "b" else ""
        raise TypeError(f"Ids must be one-dimensional integers, got {given}.{remedy}")
    outside = (raw < low) | (raw >= high)
    if outside.any():
        raise IndexError(f"Ids must lie in [{low}, {high}), got {raw[outside.argmax()]}{origin}.")
    return raw.astype(np.int64)
