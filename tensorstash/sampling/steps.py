"""One epoch of one rank: the order cut into steps, and each step into the parts of the ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import BLOCK, Order
from tensorstash.sampling.legs import Consumed


@dataclass(frozen=True, slots=True)
class Layout:
    """How a step is divided: `ranks` parts of `batch_size` windows, of which this process takes part `rank`."""

    ranks: int
    rank: int
    batch_size: int
    tail: str  # "keep", "pad" or "drop"
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


class Steps(NamedTuple):
    """The ids of one rank in several consecutive steps of equal size, computed together to save numpy calls."""

    ids: Int64s  # (steps, batch)
    valid: int | Int64s  # in each step, or `(steps, 1)`, the first `valid` ids are windows of the epoch, others filler
    epoch: int
    consumed: Sequence[Consumed]  # for each step, how far the epoch is after it


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch: a number of windows in an order."""

    number: int
    count: int
    at: Order  # positions in [0, count) to ids


def cut(epoch: Epoch, begin: int, layout: Layout, most: int | None, block: int = BLOCK) -> Iterator[Steps]:
    """The steps of an epoch from position `begin` on, at most `most` of them, in groups of about `block` ids."""
    at, count = epoch.at, epoch.count
    size, batch = layout.size, layout.batch_size
    whole, left = divmod(count - begin, size)
    wanted = whole if most is None else min(whole, most)
    part = np.arange(layout.rank * batch, (layout.rank + 1) * batch if wanted else layout.rank * batch, dtype=np.int64)
    together = max(1, block // batch)
    for first in range(0, wanted, together):
        starts = range(begin + first * size, begin + min(first + together, wanted) * size, size)
        ids = at(np.add.outer(np.array(starts, np.int64), part).reshape(-1))
        yield Steps(ids.reshape(-1, batch), batch, epoch.number, range(starts.start + size, starts.stop + size, size))
    if left and layout.tail != "drop" and (most is None or most > whole):
        positions, valid = _last_part(count - left, count, layout)
        yield Steps(at(positions)[None], valid, epoch.number, range(count, count + 1))


def _last_part(start: int, count: int, layout: Layout) -> tuple[Int64s, int]:
    """This rank's positions in an incomplete last step, and how many of them are not filler."""
    share, more = divmod(count - start, layout.ranks)
    mine = share + (layout.rank < more)
    first = start + layout.rank * share + min(layout.rank, more)
    filler = layout.batch_size - mine if layout.tail == "pad" else int(mine == 0)
    return np.concatenate([np.arange(first, first + mine), np.full(filler, start)]).astype(np.int64), mine
