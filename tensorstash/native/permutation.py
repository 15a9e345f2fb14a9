"""Keyed permutations of `0..n-1` as functions, computed on demand by the kernel or numpy, with equal results."""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.native import kernel, library

Uint64s = NDArray[np.uint64]
Order = Callable[[Int64s], Int64s]
BLOCK = 1 << 15  # positions to evaluate at a time, so that the temporary arrays stay in the cache
_SMALL = 1 << 16  # up to here a permutation is drawn uniformly and held in memory
_ROUNDS = 6
LARGEST = 1 << 62


def shuffled(n: int, seed: int, epoch: int) -> Order:
    """A permutation of `0..n-1` as a function: positions, `(k,)` int64 in `[0, n)`, to ids.

    Up to 65,536 ids it is the order of keyed hashes, uniform over all permutations. Above, a Feistel network over the
    grid `a * b >= n` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), walked until it lands below n.
    """
    if not 0 <= n <= LARGEST:
        raise ValueError(f"n must lie in [0, 2**62], got {n}.")
    keys = epoch_keys(seed, epoch)
    if n <= _SMALL:
        return lambda positions: _small(n, keys)[positions]
    if library.LIBRARY is None:
        return lambda positions: walk(positions, n, *grid(n), keys)
    compiled = kernel.permutations(np.array([[n, *grid(n), *keys]], np.uint64))
    return lambda positions: kernel.permute(compiled, np.ascontiguousarray(positions))


def epoch_keys(seed: int, epoch: int) -> tuple[int, ...]:
    """64-bit keys from a published hash, because the stream of a random generator may change between releases."""
    text = f"tensorstash order 1, seed {seed}, epoch {epoch}".encode()
    digest = hashlib.blake2b(text, digest_size=8 * _ROUNDS).digest()
    return tuple(int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8))


@lru_cache(maxsize=2)
def _small(n: int, keys: tuple[int, ...]) -> Int64s:
    hashes = mix(mix(np.arange(n, dtype=np.uint64) ^ np.uint64(keys[0])) ^ np.uint64(keys[1]))
    order = np.argsort(hashes, kind="stable").astype(np.int64)
    order.flags.writeable = False  # it is cached, and shared by all callers
    return order


def mix(x: Uint64s) -> Uint64s:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection: equal hashes do not occur."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def grid(n: int) -> tuple[int, int]:
    """The sides a and b of a grid of at least n cells."""
    a = math.isqrt(n - 1) + 1
    a += a % 2  # with an even side both parities of permutations occur
    return a, -(-n // a)


def walk(positions: Int64s, n: Any, a: Any, b: Any, keys: Sequence[Any]) -> Int64s:
    """The ids at positions of a large permutation, in numpy; of several, by arrays with an item for each position."""
    ids = feistel(positions.astype(np.uint64), a, b, keys)
    outside = np.flatnonzero(ids >= n)
    while len(outside):
        some = [value[outside] if isinstance(value, np.ndarray) else value for value in (n, a, b, *keys)]
        again = feistel(ids[outside], some[1], some[2], some[3:])
        ids[outside] = again
        outside = outside[again >= some[0]]
    return ids.view(np.int64)


def feistel(x: Uint64s, a: Any, b: Any, keys: Sequence[Any]) -> Uint64s:
    """A bijection of `[0, a * b)`: x is the cell (left, right) of an a by b grid, and the rounds move them in turn."""
    left = x // np.uint64(b)
    right = x - left * np.uint64(b)
    scratch = np.empty_like(x), np.empty_like(x)
    for k in range(0, _ROUNDS, 2):
        _round(left, right, a, keys[k], scratch)
        _round(right, left, b, keys[k + 1], scratch)
    left *= np.uint64(b)
    left += right
    return left


def _round(moved: Uint64s, by: Uint64s, size: Any, key: Any, scratch: tuple[Uint64s, Uint64s]) -> None:
    """`moved = (moved + hash(by)) % size` in place, with the hash scaled into `[0, size)`."""
    h, t = scratch
    np.bitwise_xor(by, np.uint64(key), out=h)
    h *= np.uint64(0x9E3779B97F4A7C15)
    np.right_shift(h, np.uint64(32), out=t)
    h ^= t
    h *= np.uint64(0xD6E8FEB86659FD93)
    h >>= np.uint64(32)
    h *= np.uint64(size)
    h >>= np.uint64(32)
    moved += h
    np.subtract(moved, np.uint64(size), out=h)  # wraps to a huge number where moved < size
    np.minimum(moved, h, out=moved)
