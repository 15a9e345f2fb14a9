"""Ids of windows, as callers give them."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s

Ids = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice


def is_one_id(ids: object) -> bool:
    """Whether it is a single id rather than a list of them: an integer, or an array or tensor without dimensions."""
    if isinstance(ids, (np.ndarray, torch.Tensor)):
        return ids.ndim == 0
    return isinstance(ids, (int, np.integer)) and not isinstance(ids, bool)


def as_list(one: Any) -> list[int]:
    """A single id as a list."""
    _check_values(one)
    kind = one.dtype if isinstance(one, torch.Tensor) else np.asarray(one).dtype
    if "int" not in str(kind):
        raise TypeError(f"Ids are integers; got {str(kind).removeprefix('torch.')}.")
    return [operator.index(one)]


def check_ids(ids: int | Ids, count: int) -> Int64s:
    """Ids as int64 in `[0, count)`; negative ones count from the end, as in Python."""
    if isinstance(ids, slice):
        return np.arange(*ids.indices(count), dtype=np.int64)
    _check_values(ids)
    raw = ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else np.asarray(ids)
    if raw.ndim != 1 or (raw.dtype.kind not in "iu" and raw.size):
        raise TypeError(f"Ids are one-dimensional integers; got {raw.ndim} dimensions of {raw.dtype}.")
    found = raw.astype(np.int64)
    found[found < 0] += count
    outside = (found < 0) | (found >= count)
    if outside.any():
        raise IndexError(f"Ids lie in [{-count}, {count}); got {raw[outside.argmax()]}.")
    return found


def _check_values(ids: object) -> None:
    if isinstance(ids, torch.Tensor) and ids.is_meta:
        raise TypeError("Ids have values; got a tensor on the device 'meta', which has none. Make it on the CPU.")
