"""The order of an epoch: a function from positions to ids, computed where it is asked for and never stored.

Users resume from positions in it: the same (n, seed, epoch) gives the same order on every platform and in all releases.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from tensorstash.arrays import Int64s
from tensorstash.checks import at_least

Uint64s = NDArray[np.uint64]
Order = Callable[[Int64s], Int64s]

BLOCK = 1 << 14  # positions that are best evaluated together: the temporary arrays stay in the cache
_SMALL = 1 << 16  # up to here the permutation is drawn uniformly, as a whole
_ROUNDS = 6
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Blocks:
    """An order of blocks of `size` consecutive windows: their time order is kept, the blocks are permuted.

    The cuts lie elsewhere in each epoch: the first block begins at a window drawn from the first `size`. What is left
    over before the first and behind the last whole block comes at the end of the epoch. With `batch_size=size`, each
    batch is a stretch of consecutive windows from a random start.

    Example:
        >>> import tensorstash as ts
        >>> [ids.tolist() for ids in ts.Sampler(8, 3, shuffle=ts.Blocks(3), seed=1)]
        [[5, 6, 7], [2, 3, 4], [0, 1]]
    """

    size: int

    def __post_init__(self) -> None:
        at_least(1, self.size, "size")


@dataclass(frozen=True, slots=True)
class Lanes:
    """The sequential order in `count` equal pieces, side by side: step s takes element s of each.

    Row by row, each batch continues the one before, as truncated backpropagation through time wants it. There is one
    lane for each row of the batches of all ranks: `count` is `num_replicas * batch_size`. Of pieces that cannot be
    equal, the first are one longer.

    Example:
        >>> import tensorstash as ts
        >>> [ids.tolist() for ids in ts.Sampler(8, 3, shuffle=ts.Lanes(3))]
        [[0, 3, 6], [1, 4, 7], [2, 5]]
    """

    count: int

    def __post_init__(self) -> None:
        at_least(1, self.count, "count")

    def ids(self, n: int, positions: Int64s) -> Int64s:
        """The ids at positions of the order of `0..n-1`."""
        length, longer = divmod(n, self.count)
        at, lane = np.divmod(positions, self.count)
        return lane * length + np.minimum(lane, longer) + at

    def places(self, n: int, ids: Int64s) -> tuple[Int64s, Int64s]:
        """The lane of each id, and its place there."""
        length, longer = divmod(n, self.count)
        first_short = longer * (length + 1)
        long_lane, long_at = np.divmod(ids, length + 1)
        short_lane, short_at = np.divmod(ids - first_short, max(length, 1))
        in_long = ids < first_short
        return np.where(in_long, long_lane, longer + short_lane), np.where(in_long, long_at, short_at)


Shuffle = bool | Blocks | Lanes


def check_shuffle(shuffle: object) -> None:
    """Refuse what is no order, such as a class in place of an instance."""
    if not isinstance(shuffle, (bool, np.bool_, Blocks, Lanes)):
        raise TypeError(f"shuffle= is True, False, ts.Blocks(size) or ts.Lanes(count); got {shuffle!r}.")


def order(shuffle: Shuffle, n: int, seed: int, epoch: int) -> Order:
    """The order that an argument `shuffle` asks for: sequential, shuffled, of blocks or of lanes."""
    if isinstance(shuffle, Lanes):
        return partial(shuffle.ids, n)
    if isinstance(shuffle, Blocks):
        return _blocks(n, shuffle.size, seed, epoch)
    return shuffled(n, seed, epoch) if shuffle else _sequential


def name_of(shuffle: Shuffle) -> str:
    """The order's name in a state."""
    if isinstance(shuffle, Blocks):
        return f"blocks of {shuffle.size}"
    if isinstance(shuffle, Lanes):
        return f"{shuffle.count} lanes"
    return "shuffled" if shuffle else "sequential"


def shuffled(n: int, seed: int, epoch: int) -> Order:
    """A permutation of `0..n-1` as a function: positions, `(k,)` int64 in `[0, n)`, to ids.

    Up to 65,536 ids it is the order of keyed hashes, uniform over all permutations. Above, a Feistel network over the
    grid `a * b >= n` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), walked until it lands below n.
    """
    if not 0 <= n <= _LARGEST:
        raise ValueError(f"n lies in [0, 2**62]; got {n}.")
    keys = _keys(seed, epoch)
    if n <= _SMALL:
        return lambda positions: _small(n, keys)[positions]
    return lambda positions: _walk(positions, n, keys)


def _sequential(positions: Int64s) -> Int64s:
    return positions


def _blocks(n: int, size: int, seed: int, epoch: int) -> Order:
    """Whole blocks first, permuted, then the windows before the first and behind the last of them."""
    first = min(_keys(seed, epoch)[0] % size, n)
    size = min(size, _LARGEST)
    whole = (n - first) // size
    permuted = shuffled(whole, seed, epoch)

    def at(positions: Int64s) -> Int64s:
        block, within = np.divmod(positions, size)
        ids = np.where(positions < whole * size + first, positions - whole * size, positions)
        inside = block < whole
        ids[inside] = first + permuted(block[inside]) * size + within[inside]
        return ids

    return at


def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    """64-bit keys from a published hash: no generator whose stream may change."""
    text = f"tensorstash order 1, seed {seed}, epoch {epoch}".encode()
    digest = hashlib.blake2b(text, digest_size=8 * _ROUNDS).digest()
    return tuple(int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8))


@lru_cache(maxsize=2)
def _small(n: int, keys: tuple[int, ...]) -> Int64s:
    hashes = _mix(_mix(np.arange(n, dtype=np.uint64) ^ np.uint64(keys[0])) ^ np.uint64(keys[1]))
    order = np.argsort(hashes, kind="stable").astype(np.int64)
    order.flags.writeable = False  # it is shared by all who ask
    return order


def _mix(x: Uint64s) -> Uint64s:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection: equal hashes do not occur."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _walk(positions: Int64s, n: int, keys: tuple[int, ...]) -> Int64s:
    a = math.isqrt(n - 1) + 1
    a += a % 2  # with an even side both parities of permutations occur
    b = -(-n // a)
    ids = _feistel(positions.astype(np.uint64), a, b, keys)
    outside = np.flatnonzero(ids >= n)
    while len(outside):
        again = _feistel(ids[outside], a, b, keys)
        ids[outside] = again
        outside = outside[again >= n]
    return ids.view(np.int64)


def _feistel(x: Uint64s, a: int, b: int, keys: tuple[int, ...]) -> Uint64s:
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


def _round(moved: Uint64s, by: Uint64s, size: int, key: int, scratch: tuple[Uint64s, Uint64s]) -> None:
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
