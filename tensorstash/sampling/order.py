"""The order of an epoch: a function from positions to ids, computed where it is needed and never stored.

Users resume from positions in it: the same (n, seed, epoch) gives the same order everywhere and in every release.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import LARGEST, Order, epoch_keys, shuffled


@dataclass(frozen=True, slots=True)
class Blocks:
    """Permuted blocks of `size` consecutive windows: within a block, windows stay in the order of time.

    The blocks are cut at other places in each epoch: the first block begins at a window drawn from the first `size`.
    The windows before the first and behind the last whole block come at the end of the epoch. With `batch_size=size`,
    each batch is a stretch of consecutive windows from a random start.

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
    """The sequential order in `count` equal pieces, side by side: step s takes element s of each piece.

    Each row of a batch continues the same row of the batch before, which truncated backpropagation through time needs.
    There is one lane for each row of the batches of all ranks, so `count` is `num_replicas * batch_size`. If the pieces
    cannot be equal, the first ones are one window longer.

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
        """The lane of each id, and its position in the lane."""
        length, longer = divmod(n, self.count)
        first_short = longer * (length + 1)
        long_lane, long_at = np.divmod(ids, length + 1)
        short_lane, short_at = np.divmod(ids - first_short, max(length, 1))
        in_long = ids < first_short
        return np.where(in_long, long_lane, longer + short_lane), np.where(in_long, long_at, short_at)


Exact = bool | Blocks | Lanes  # orders in which each window comes once


def order(shuffle: Exact, n: int, seed: int, epoch: int) -> Order:
    """The order that an argument `shuffle` asks for; `seed` is not used where nothing is drawn."""
    if isinstance(shuffle, Lanes):
        return partial(shuffle.ids, n)
    if isinstance(shuffle, Blocks):
        return _blocks(n, shuffle.size, seed, epoch)
    return shuffled(n, seed, epoch) if shuffle else _sequential


def name_of(shuffle: Exact) -> str:
    """The order's name in a state."""
    if isinstance(shuffle, Blocks):
        return f"blocks of {shuffle.size}"
    if isinstance(shuffle, Lanes):
        return f"{shuffle.count} lanes"
    return "shuffled" if shuffle else "sequential"


def _sequential(positions: Int64s) -> Int64s:
    return positions


def _blocks(n: int, size: int, seed: int, epoch: int) -> Order:
    """Whole blocks first, permuted, then the windows before the first and behind the last of them."""
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
