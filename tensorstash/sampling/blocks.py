"""Permuted blocks of consecutive windows."""

from collections.abc import Sized
from dataclasses import dataclass

import numpy as np

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import LARGEST, epoch_keys, shuffled
from tensorstash.sampling.order import Ids, SequenceOrder


@dataclass(frozen=True, slots=True)
class Blocks:
    """Permuted blocks of `size` consecutive windows: within a block, windows stay in the order of time.

    The blocks are cut at other places in each epoch: the first block begins at a window drawn from the first `size`.
    The windows before the first and after the last whole block come at the end of the epoch. With `batch_size=size`,
    each batch is a block of consecutive windows from a random start.

    Args:
        size: windows per block, at least 1.

    Raises:
        ValueError: `size` is below 1.

    Example:
        >>> import tensorstash as ts
        >>> list(ts.Sampler(8, 3, order=ts.Blocks(3), seed=1))
        [[5, 6, 7], [2, 3, 4], [0, 1]]
    """

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", at_least(1, self.size, "size"))

    def bind(self, windows: Sized) -> "BlocksOrder":
        """The order of these windows."""
        return BlocksOrder(self.size, len(windows))


class BlocksOrder(SequenceOrder):
    """The order of `ts.Blocks`: whole blocks permuted, then the windows before the first and after the last of them."""

    def __init__(self, size: int, windows: int) -> None:
        self.name = f"blocks of {size}"
        self.positions = windows
        self._size = size

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        n, size = self.positions, min(self._size, LARGEST)
        first = min(epoch_keys(seed, epoch)[0] % self._size, n)
        whole = (n - first) // size
        permuted = shuffled(whole, seed, epoch)

        def ids_at(positions: Int64s) -> Int64s:
            block, within = np.divmod(positions, size)
            ids = np.where(positions < whole * size + first, positions - whole * size, positions)
            inside = block < whole
            ids[inside] = first + permuted(block[inside]) * size + within[inside]
            return ids

        return ids_at
