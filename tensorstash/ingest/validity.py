"""Where the source has a value, from Arrow to numpy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tensorstash.columns.column import Column
from tensorstash.columns.types import is_text
from tensorstash.ingest.codes import plain_text
from tensorstash.ingest.stats import Stats
from tensorstash.ingest.values import flatten, from_bfloat16


def validity(arrays: Sequence[pa.Array], column: Column, place: str) -> tuple[NDArray[Any], Stats]:
    """`(n, *column.shape)` booleans: true where the value is neither null nor NaN."""
    flat = [_valid(array, column, name, place) for array, name in zip(arrays, column.members)]
    found = (flat[0] if len(flat) == 1 else np.stack(flat, axis=1)).reshape(-1, *column.shape)
    low, high = (bool(found.min()), bool(found.max())) if found.size else (None, None)
    return found, Stats(low=low, high=high)


def _valid(array: pa.Array, column: Column, name: str, place: str) -> NDArray[Any]:
    """Where one source column has a value, flat."""
    if is_text(array.type):
        plain = plain_text(array)
        if pa.types.is_dictionary(plain.type):
            plain = plain.dictionary_decode() if plain.dictionary.null_count else plain.indices
        return np.asarray(plain.is_valid().to_numpy(zero_copy_only=False))
    flat = flatten(array, column, name, place)
    valid = np.asarray(flat.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_floating(flat.type) or column.bits:
        raw = np.asarray(pc.fill_null(flat, pa.scalar(0).cast(flat.type)).to_numpy(zero_copy_only=False))
        valid &= ~np.isnan(from_bfloat16(raw) if column.bits else raw)
    return valid
