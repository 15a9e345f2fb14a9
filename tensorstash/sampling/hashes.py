"""Keyed hashes and checksums of integers, in blocks, equal on every platform and in every release."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import Uint64s, mix

CHUNK = 1 << 16  # windows, times or weights at a time: the temporary arrays stay in the cache


def chunks(count: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """`[0, count)` in ranges of 65,536, rounded up to a multiple of `multiple`; the last one may be shorter."""
    size = -(-CHUNK // multiple) * multiple
    for low in range(0, count, size):
        yield low, min(low + size, count)


def in_chunks(values_at: Callable[[Int64s], NDArray[Any]], count: int, dtype: Any) -> NDArray[Any]:
    """What a function returns for the numbers below `count`, computed in chunks, so that its memory stays small."""
    values = np.empty(count, dtype)
    for low, high in chunks(count):
        values[low:high] = values_at(np.arange(low, high))
    return values


def checksum(*arrays: NDArray[np.integer[Any]]) -> int:
    """The CRC-32 of all arrays, one after the other, as little-endian int64."""
    crc = 0
    for array in arrays:
        for low, high in chunks(len(array)):
            crc = zlib.crc32(array[low:high].astype("<i8").tobytes(), crc)
    return crc


def keys(text: str) -> Uint64s:
    """Eight keys, `(8,)`: the BLAKE2b digest (RFC 7693) of a text, read as little-endian words of 64 bits."""
    return np.frombuffer(hashlib.blake2b(text.encode()).digest(), "<u8").astype(np.uint64)


def hashes(numbers: Int64s, first: Uint64s | np.uint64, second: Uint64s | np.uint64) -> Uint64s:
    """Two rounds of the SplitMix64 finalizer, each with a key: different numbers have different hashes."""
    return mix(mix(numbers.astype(np.uint64) ^ first) ^ second)
