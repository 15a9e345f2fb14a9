"""A few windows of every entity in each epoch, drawn anew without replacement.

An order takes up to 32 bytes per entity, and no memory that grows with the windows, but for those at given points.
"""

from dataclasses import dataclass

import numpy as np

from tensorstash.common.checks import MOST_COUNT, at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.guide import find, guide
from tensorstash.native.permutation import Uint64s, shuffled
from tensorstash.sampling.components import grids, permute
from tensorstash.sampling.hashes import hashes, keys
from tensorstash.sampling.order import Count, Ids, SequenceOrder, ids_by_entity
from tensorstash.windows.windows import Windows

_MOST_SWAPS = 16  # a draw takes a hash for each swap; beyond, the network of `shuffled` takes fewer


@dataclass(frozen=True, slots=True)
class PerEntity:
    """An order whose epochs show `count` windows of every entity, or all of an entity that has fewer.

    So every entity counts alike, however long it is. Its windows are drawn anew in each epoch, without replacement and
    uniformly, and the windows of all entities are permuted together. An epoch is a function of the numbers of windows
    of the entities, the seed and the epoch. An entity without windows is left out; a stash without `entity=` is one
    entity.

    Args:
        count: windows of each entity in an epoch, at least 1, which is the default.

    Raises:
        ValueError: `count` is below 1.

    Example:
        >>> import tensorstash as ts
        >>> shop = ["A"] * 100 + ["B"] * 10 + ["C"]
        >>> windows = ts.Windows(ts.load({"shop": shop, "sold": range(111)}, entity="shop"), history=1)
        >>> loader = ts.Loader(windows, 8, order=ts.PerEntity(2))
        >>> [batch["sold"][:, 0].tolist() for _ in range(2) for batch in loader]
        [[110, 57, 108, 50, 105], [110, 29, 105, 52, 103]]
    """

    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", at_least(1, self.count, "count", below=MOST_COUNT))

    def bind(self, windows: Windows | Count) -> "PerEntityOrder":
        """The order of these windows."""
        if isinstance(windows, Count):
            raise windows.lacking(self)
        return PerEntityOrder(self.count, windows.per_entity()["count"].numpy(), ids_by_entity(windows))


class PerEntityOrder(SequenceOrder):
    """The order of `ts.PerEntity`: `windows`, `(entities,)`, are numbered by entity, or are `ids` in this order."""

    def __init__(self, count: int, windows: Int64s, ids: Int64s | None) -> None:
        self.name = f"{count} of each entity"
        self._count = count
        self._first = np.append(0, np.cumsum(windows))
        self._draws = guide(np.cumsum(np.minimum(windows, count))[:, None])  # of each entity, among those of an epoch
        self._ids = ids
        self.positions = int(np.minimum(windows, count).sum())

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        permuted = shuffled(self.positions, seed, epoch)
        base = keys(f"tensorstash per entity 1, seed {seed}, epoch {epoch}")
        drawn = _by_swaps if self._count <= _MOST_SWAPS else _by_network

        def ids_at(positions: Int64s) -> Int64s:
            position = permuted(positions)
            entity = find(self._draws, position)
            first = self._first[entity]
            windows = self._first[entity + 1] - first
            draw = position - self._draws.ends[entity] + np.minimum(windows, self._count)
            more = np.flatnonzero(windows > self._count)  # of the others all are shown
            if len(more):
                draw[more] = drawn(windows[more], draw[more], entity[more].astype(np.int64), base)
            ids = first + draw
            return ids if self._ids is None else self._ids[ids]

        return ids_at


def _by_swaps(windows: Int64s, draw: Int64s, entity: Int64s, base: Uint64s) -> Int64s:
    """Which of the `windows` of an entity comes at its draw, all `(k,)`: uniform over the rows of different windows.

    They are shuffled as by Fisher and Yates: swap s exchanges the windows at s and at `s + hash(s) % (windows - s)`.
    The swaps are followed from that of the draw, after which its position is settled, back to the first one.
    """
    of_entity, position = hashes(entity, base[0], base[1]), draw.copy()
    for swap in range(int(draw.max(initial=-1)), -1, -1):
        left = (windows - swap).astype(np.uint64)
        other = swap + (hashes(np.array([swap]), of_entity, base[2]) % left).astype(np.int64)
        position = np.where(draw == swap, other, np.where((draw > swap) & (position == other), swap, position))
    return position


def _by_network(windows: Int64s, draw: Int64s, entity: Int64s, base: Uint64s) -> Int64s:
    """The same by the network of `shuffled`, whose cost does not grow with the draws."""
    numbers = [hashes(entity, base[k], base[k + 1]) for k in range(6)]
    return permute(grids(windows, numbers), np.arange(len(draw), dtype=np.int32), draw)
