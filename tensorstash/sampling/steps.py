"""Steps of an epoch, and the parts of the ranks in each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tensorstash.common.dtypes import Int64s

Tail = Literal["keep", "pad", "drop"]
Progress = Any  # how much of an epoch is done, in terms of its order; `None` at the beginning of the epoch


@dataclass(frozen=True, slots=True)
class Layout:
    """How a step is divided: `ranks` parts of `batch_size` windows, of which this process takes part `rank`."""

    ranks: int
    rank: int
    batch_size: int
    tail: Tail
    varies: bool  # whether batches vary in size, also between ranks, so that `batch_size` is only the largest

    @property
    def size(self) -> int:
        """Windows of a whole step, over all ranks."""
        return self.ranks * self.batch_size

    @property
    def has_filler(self) -> bool:
        """Whether batches may hold filler, and so carry `valid`."""
        return self.tail == "pad" or (self.tail == "keep" and self.ranks > 1)

    def steps_of(self, count: int) -> int:
        """The number of steps that `count` consecutive windows make."""
        return count // self.size if self.tail == "drop" else -(-count // self.size)


class Steps(NamedTuple):
    """The ids of one rank in several consecutive steps of equal size, computed together to save numpy calls."""

    ids: Int64s  # (steps, batch)
    positions: Int64s  # (steps, batch) in the order of the epoch over all ranks; filler has that of its window
    valid: int | Int64s  # in each step, or `(steps, 1)`, the first `valid` ids are windows of the epoch, others filler
    epoch: int
    progress: Sequence[Progress]  # of the epoch after each step

    def windows(self, steps: range) -> slice:
        """Where the windows of some of the steps are among all windows, one step after the other."""
        count = self.ids.shape[1]
        return slice(steps.start * count, steps.stop * count)


def share(starts: Int64s, count: int | Int64s, layout: Layout) -> tuple[Int64s, int | Int64s]:
    """This rank's positions, `(steps, batch)`, in steps that begin at `starts`, and how many of each are not filler.

    A step has `count` windows, `(steps,)` or equally many. The parts of the ranks differ by at most one. With
    `tail="pad"` filler completes each of them; otherwise a rank without a part gets one. Filler repeats the first
    position of the step.
    """
    each, more = divmod(count, layout.ranks)
    mine = each + (layout.rank < more)
    first = layout.rank * each + np.minimum(layout.rank, more)
    width = int(np.max(mine, initial=1))
    if layout.tail == "pad":
        width = layout.batch_size
    valid = mine[:, None] if isinstance(mine, np.ndarray) else int(mine)
    number = np.arange(width)
    within = np.where(number < valid, np.expand_dims(first, -1) + number, 0)
    return starts[:, None] + within, valid
