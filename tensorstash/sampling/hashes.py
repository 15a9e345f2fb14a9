"""Published hashes: the same numbers on every platform and in all releases."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import _mix as mix

Uint64s = NDArray[np.uint64]


def keys(text: str) -> Uint64s:
    """Eight keys, `(8,)`: the BLAKE2b digest (RFC 7693) of a text, read as little-endian words of 64 bits."""
    return np.frombuffer(hashlib.blake2b(text.encode()).digest(), "<u8").astype(np.uint64)


def hashes(numbers: Int64s, first: Uint64s | np.uint64, second: Uint64s | np.uint64) -> Uint64s:
    """Two rounds of the SplitMix64 finalizer, each with a key: different numbers have different hashes."""
    return mix(mix(numbers.astype(np.uint64) ^ first) ^ second)
