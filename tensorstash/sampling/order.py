"""The order of an epoch: a function from positions to ids, computed where it is needed and never stored.

Users resume from positions in it, so the same (n, seed, epoch) gives the same order everywhere and in every release.
The same holds for the keyed hashes of drawn orders.
"""

import hashlib
import operator
import zlib
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import LARGEST, Order, epoch_keys, shuffled
from tensorstash.native.permutation import _mix as mix

Uint64s = NDArray[np.uint64]

CHUNK = 1 << 16  # windows, times or weights at a time: the temporary arrays stay in the cache
_KEPT_EPOCHS = 2  # of `OwnIds`: the current one, and the one being prefetched


@dataclass(frozen=True, slots=True)
class Blocks:
    """Permuted blocks of `size` consecutive windows: within a block, windows stay in the order of time.

    The blocks are cut at other places in each epoch: the first block begins at a window drawn from the first `size`.
    The windows before the first and after the last whole block come at the end of the epoch. With `batch_size=size`,
    each batch is a stretch of consecutive windows from a random start.

    Example:
        >>> import tensorstash as ts
        >>> [ids.tolist() for ids in ts.Sampler(8, 3, order=ts.Blocks(3), seed=1)]
        [[5, 6, 7], [2, 3, 4], [0, 1]]
    """

    size: int

    def __post_init__(self) -> None:
        at_least(1, self.size, "size")


@dataclass(frozen=True, slots=True)
class Lanes:
    """The sequential order in `count` equal pieces, side by side: step s takes element s of each piece.

    Each row of a batch continues the same row of the batch before, which truncated backpropagation through time needs.
    There is one lane for each row of the batches of all ranks, so `count` is `num_replicas * batch_size`. If the pieces
    cannot be equal, the first ones are one window longer.

    Example:
        >>> import tensorstash as ts
        >>> [ids.tolist() for ids in ts.Sampler(8, 3, order=ts.Lanes(3))]
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
        """The lane of each id, and its position in the lane."""
        length, longer = divmod(n, self.count)
        first_short = longer * (length + 1)
        long_lane, long_at = np.divmod(ids, length + 1)
        short_lane, short_at = np.divmod(ids - first_short, max(length, 1))
        in_long = ids < first_short
        return np.where(in_long, long_lane, longer + short_lane), np.where(in_long, long_at, short_at)


Exact = bool | Blocks | Lanes  # orders in which each window comes once


def order(shuffle: Exact, n: int, seed: int, epoch: int) -> Order:
    """The order for an argument `shuffle`; orders without randomness ignore `seed`."""
    if isinstance(shuffle, Lanes):
        return partial(shuffle.ids, n)
    if isinstance(shuffle, Blocks):
        return _blocks(n, shuffle.size, seed, epoch)
    return shuffled(n, seed, epoch) if shuffle else lambda positions: positions


def name_of(shuffle: Exact) -> str:
    """The order's name in a state."""
    if isinstance(shuffle, Blocks):
        return f"blocks of {shuffle.size}"
    if isinstance(shuffle, Lanes):
        return f"{shuffle.count} lanes"
    return "shuffled" if shuffle else "sequential"


def _blocks(n: int, size: int, seed: int, epoch: int) -> Order:
    """Permuted whole blocks first, then the windows before the first and after the last whole block."""
    first = min(epoch_keys(seed, epoch)[0] % size, n)
    size = min(size, LARGEST)
    whole = (n - first) // size
    permuted = shuffled(whole, seed, epoch)

    def at(positions: Int64s) -> Int64s:
        block, within = np.divmod(positions, size)
        ids = np.where(positions < whole * size + first, positions - whole * size, positions)
        inside = block < whole
        ids[inside] = first + permuted(block[inside]) * size + within[inside]
        return ids

    return at


class OwnIds:
    """The caller's order, `order=ids`: an iterable with a length that yields the window ids of one epoch.

    Its method `set_epoch(epoch)`, if it has one, is called before each epoch. The ids of an epoch are kept, 8 bytes
    each. The state holds their checksum, because the iterable may yield other ids when the run is resumed.
    """

    def __init__(self, ids: Any, windows: int) -> None:
        if not isinstance(ids, Sized) or not hasattr(ids, "__iter__") or isinstance(ids, (str, bytes)):
            raise TypeError(
                "order must be ts.Blocks(size), ts.Lanes(count), ts.Weighted(weights), ts.ByTime(), or an iterable of "
                f"window ids with a length, got {ids!r}."
            )
        if isinstance(ids, (np.ndarray, torch.Tensor)) and not ids.ndim:
            raise TypeError(f"order must be a list of ids, got the single {ids!r}. Write [...] around it.")
        if not len(ids):
            raise ValueError("order must give at least one id, got a length of 0.")
        self._given = ids
        self._windows = windows
        self._epochs: dict[int, tuple[Int64s, int]] = {}
        self._expected: tuple[int, int] | None = None  # the epoch of a loaded state, and the checksum of its ids

    def __len__(self) -> int:
        """Ids per epoch."""
        return len(self._given)

    def at(self, _seed: int, epoch: int) -> Order:
        """The order of an epoch: positions to ids."""
        if epoch not in self._epochs:
            ids = self._ids_of(epoch)
            checksum = zlib.crc32(ids.tobytes())
            if self._expected is not None and self._expected[0] == epoch and self._expected[1] != checksum:
                raise ValueError(
                    f"order= gives other ids for epoch {epoch} than when the state was saved, so the position in it "
                    "cannot be found. Make its ids depend on its set_epoch(epoch) alone, or call loader.set_epoch() "
                    "for another epoch."
                )
            kept = [*self._epochs.items()][1 - _KEPT_EPOCHS :]
            self._epochs = dict([*kept, (epoch, (ids, checksum))])
        return self._epochs[epoch][0].__getitem__

    def checksum(self, epoch: int) -> int | None:
        """The checksum of the ids of an epoch; `None` if the epoch has not begun."""
        return self._epochs[epoch][1] if epoch in self._epochs else None

    def expect(self, epoch: int, checksum: int | None) -> None:
        """Require the same ids again for an epoch, because a state from the middle of it was loaded."""
        self._expected = None if checksum is None else (epoch, checksum)
        if self.checksum(epoch) != checksum:
            self._epochs.pop(epoch, None)

    def _ids_of(self, epoch: int) -> Int64s:
        if hasattr(self._given, "set_epoch"):
            self._given.set_epoch(epoch)
        if isinstance(self._given, (np.ndarray, torch.Tensor)):
            ids = np.asarray(self._given)
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise TypeError(f"Ids must be one-dimensional integers, got {ids.ndim} dimensions of {ids.dtype}.")
            ids = ids.astype(np.int64)
        else:
            try:
                ids = np.fromiter((_id(k) for k in self._given), np.int64)
            except TypeError as error:
                raise TypeError("order must give one integer at a time, the id of a window.") from error
        if len(ids) != len(self._given):
            raise ValueError(f"order must give as many ids as its length, {len(self._given):,}, got {len(ids):,}.")
        outside = (ids < 0) | (ids >= self._windows)
        if outside.any():
            raise IndexError(f"Ids must lie in [0, {self._windows}), got {ids[outside.argmax()]} from order=.")
        return ids


def _id(given: SupportsIndex) -> int:
    if isinstance(given, bool):
        raise TypeError(f"an id must be an integer, got {given}")
    return operator.index(given)


def chunks(count: int) -> Iterator[tuple[int, int]]:
    """`[0, count)` in ranges of at most 65,536."""
    for low in range(0, count, CHUNK):
        yield low, min(low + CHUNK, count)


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
