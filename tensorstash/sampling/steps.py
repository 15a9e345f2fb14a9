"""One epoch of one rank: the order cut into steps, and each step into the parts of the ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import BLOCK, Order

Tail = Literal["keep", "pad", "drop"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a step is divided: `ranks` parts of `batch_size` windows, of which this process takes part `rank`."""

    ranks: int
    rank: int
    batch_size: int
    tail: Tail
    varies: bool = False  # whether steps vary in size, so that `batch_size` is only the largest

    @property
    def size(self) -> int:
        """Windows of a whole step, over all ranks."""
        return self.ranks * self.batch_size

    @property
    def masked(self) -> bool:
        """Whether batches may hold filler, and so carry `valid`."""
        return self.tail == "pad" or (self.tail == "keep" and self.ranks > 1)

    def steps_of(self, count: int) -> int:
        """Steps of an epoch, or of the rest of one, that has `count` windows."""
        return count // self.size if self.tail == "drop" else -(-count // self.size)


class Leg(NamedTuple):
    """A number of steps of an epoch over shards, taken with one layout."""

    nodes: int
    ranks: int  # of each node
    batch_size: int
    steps: int

    @property
    def size(self) -> int:
        """The most windows that a node shows in a step."""
        return self.ranks * self.batch_size


Legs = tuple[Leg, ...]
Consumed = int | Legs  # windows of an epoch's order that all ranks have used; over shards, the legs of the epoch


class Steps(NamedTuple):
    """The ids of one rank in several consecutive steps of equal size, computed together to save numpy calls."""

    ids: Int64s  # (steps, batch)
    positions: Int64s  # (steps, batch) in the order of the epoch over all ranks; filler has that of its window
    valid: int | Int64s  # in each step, or `(steps, 1)`, the first `valid` ids are windows of the epoch, others filler
    epoch: int
    consumed: Sequence[Consumed]  # after each step


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch: a number of windows in an order."""

    number: int
    count: int
    at: Order  # positions in [0, count) to ids


def steps_after(epoch: Epoch, begin: int, layout: Layout, most: int | None, block: int = BLOCK) -> Iterator[Steps]:
    """The steps of an epoch from position `begin` on, at most `most`, in groups of about `block` ids."""
    at, count = epoch.at, epoch.count
    size, batch = layout.size, layout.batch_size
    whole, left = divmod(count - begin, size)
    wanted = whole if most is None else min(whole, most)
    part = np.arange(layout.rank * batch, (layout.rank + 1) * batch if wanted else layout.rank * batch, dtype=np.int64)
    per_group = max(1, block // batch)
    for first in range(0, wanted, per_group):
        starts = range(begin + first * size, begin + min(first + per_group, wanted) * size, size)
        positions = np.add.outer(np.array(starts, np.int64), part)
        ids = at(positions.reshape(-1)).reshape(positions.shape)
        yield Steps(ids, positions, batch, epoch.number, range(starts.start + size, starts.stop + size, size))
    if left and layout.tail != "drop" and (most is None or most > whole):
        of_rank, valid = part_with_filler(left, layout)
        positions = of_rank + (count - left)
        yield Steps(at(positions)[None], positions[None], valid, epoch.number, range(count, count + 1))


def part_with_filler(count: int, layout: Layout) -> tuple[Int64s, int]:
    """This rank's positions in a step of `count` windows, and how many of them are not filler."""
    first, last = part(count, layout.ranks, layout.rank)
    mine, wanted = last - first, -(-count // layout.ranks) if layout.varies else layout.batch_size
    filler = wanted - mine if layout.tail == "pad" else int(mine == 0)
    return np.concatenate([np.arange(first, last), np.zeros(filler, np.int64)]), mine


def part(count: int, ranks: int, rank: int) -> tuple[int, int]:
    """The part `[begin, end)` of a step of `count` windows that a rank takes; parts differ by at most one."""
    share, more = divmod(count, ranks)
    begin = rank * share + min(rank, more)
    return begin, begin + share + (rank < more)
