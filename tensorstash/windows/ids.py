"""The ids of windows, as callers give them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of
from tensorstash.common.dtypes import Int64s

Ids = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | slice


def check_ids(ids: int | Ids, count: int) -> Int64s:
    """Ids as int64 in `[0, count)`; negative ones count from the end, as in Python."""
    if isinstance(ids, slice):
        return np.arange(*ids.indices(count), dtype=np.int64)
    raw = array_of(ids, "Ids")
    if raw.ndim != 1 or (raw.dtype.kind not in "iu" and raw.size):
        raise TypeError(f"Ids must be one-dimensional integers, got {raw.ndim} dimensions of {raw.dtype}.")
    numbers = raw.astype(np.int64)
    numbers[numbers < 0] += count
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        raise IndexError(f"Ids must lie in [{-count}, {count}), got {raw[outside.argmax()]}.")
    return numbers
