"""Batches that each hold windows of one anchor time, in the order of their entities."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tensorstash.common.checks import flag
from tensorstash.native.permutation import BLOCK, shuffled
from tensorstash.sampling.hashes import checksum
from tensorstash.sampling.order import Count, Ids, Order, ids_by_entity
from tensorstash.sampling.sections import Cuts, Sections, cuts, sections, whole
from tensorstash.sampling.steps import Layout, Progress, Steps, Tail, share
from tensorstash.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class ByTime:
    """An order whose batches each hold windows of one anchor time (exactly equal), in the order of their entities.

    Times ascend; with `shuffle=True` they are permuted in each epoch. With `batch_size=None` a batch is a whole
    cross-section, all windows of its time, on any number of ranks: in step s, counted from 0, rank r has time number
    `s * num_replicas + r`. Batches then vary in size. A rank that has no time in the last step gets the windows of the
    first rank, all with `valid` false; only `tail="keep"` is allowed. With a size, each time is cut into steps of that
    size, which the ranks share, and its last step may be incomplete: what is computed over a batch, such as a rank, is
    then of a part of the cross-section. Each rank holds a table of 4 bytes per window; building it takes 20 bytes per
    window, 28 at given points.

    Args:
        shuffle: permute the times in each epoch.

    Example:
        >>> import tensorstash as ts
        >>> table = {"stock": ["a", "a", "a", "b", "b"], "day": [1, 2, 3, 2, 3]}
        >>> table["price"] = [1.0, 2.0, 3.0, 20.0, 30.0]
        >>> windows = ts.Windows(ts.load(table, entity="stock", time="day"), history=1)
        >>> [batch["price"][:, 0].tolist() for batch in ts.Loader(windows, None, order=ts.ByTime())]
        [[1.0], [2.0, 20.0], [3.0, 30.0]]
    """

    shuffle: bool = False

    def __post_init__(self) -> None:
        flag(self.shuffle, "shuffle of ts.ByTime")

    def bind(self, windows: Windows | Count) -> "ByTimeOrder":
        """The order of these windows."""
        if isinstance(windows, Count):
            raise windows.lacking(self)
        if windows.stash.time is None:
            raise ValueError("ts.ByTime needs times, and this stash has none. Load it with time=.")
        of, by_entity = windows.placement, ids_by_entity(windows)
        table = sections(lambda ids: of.window_times(ids, of.anchor_slots(ids)), len(windows), by_entity)
        return ByTimeOrder(table, shuffle=bool(self.shuffle))


class ByTimeOrder(Order):
    """The order of `ts.ByTime`; the progress of an epoch is the number of its windows that all ranks have used."""

    def __init__(self, table: Sections, *, shuffle: bool) -> None:
        self.name = "by time, shuffled" if shuffle else "by time"
        self.positions = len(table.ids)
        self.fingerprint = {"times": checksum(table.ends, table.ids)}
        self.is_seeded = shuffle
        self._table = table

    @cached_property
    def largest_batch(self) -> int:  # type: ignore[override]  # a value of the protocol
        """The number of windows of the largest time."""
        ends = self._table.ends
        return int(np.diff(ends, prepend=ends.dtype.type(0)).max())

    def check_tail(self, tail: Tail, *, varies: bool) -> None:
        """Refuse to fill up or to leave out batches that are whole by definition."""
        if varies and tail != "keep":
            raise ValueError(
                'tail must be "keep" without batch_size=, because each batch has all windows of its time, got '
                f'{tail!r}. Use tail="keep", or give batch_size=.'
            )

    def count(self, seed: int, epoch: int, layout: Layout, since: Progress) -> int:
        """The number of steps left in an epoch."""
        return sum(len(group.consumed) for group in self._cuts(seed, epoch, since, layout))

    def steps(self, seed: int, epoch: int, since: Progress, layout: Layout, most: int | None) -> Iterator[Steps]:
        """The rank's part of the steps left in an epoch; a group has batches of one size."""
        for group in self._cuts(seed, epoch, since, layout):
            wanted = len(group.start) if most is None else min(most, len(group.start))
            counts = (group.stop - group.start)[:wanted]
            edges = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), wanted]
            for low, high in pairwise(edges):
                per_group = max(1, BLOCK // int(counts[low]))
                for first in range(low, high, per_group):
                    yield self._part(group, slice(first, min(first + per_group, high)), epoch, layout)
            most = None if most is None else most - wanted
            if most == 0:
                return

    def after(self, seed: int, epoch: int, steps: int, layout: Layout) -> Progress:
        """The progress of an epoch after its first `steps` steps."""
        if not steps:
            return None
        for group in self._cuts(seed, epoch, None, layout):
            if steps <= len(group.consumed):
                return int(group.consumed[steps - 1])
            steps -= len(group.consumed)
        return self.positions

    def _cuts(self, seed: int, epoch: int, since: Progress, layout: Layout) -> Iterator[Cuts]:
        times = len(self._table.ends)
        order: Ids = shuffled(times, seed, epoch) if self.is_seeded else lambda positions: positions
        if layout.varies:
            return whole(self._table, order, since or 0, layout.ranks, layout.rank)
        return cuts(self._table, order, since or 0, layout.size, layout.tail == "drop")

    def _part(self, group: Cuts, which: slice, epoch: int, layout: Layout) -> Steps:
        """This rank's part of steps that all have the same number of windows."""
        begins, starts = group.start[which], group.position[which]
        count = int(group.stop[which.start] - group.start[which.start])
        if not layout.varies:
            positions, valid = share(starts, count, layout)
        else:
            positions, valid = starts[:, None] + np.arange(count), np.where(group.is_filler[which], 0, count)[:, None]
        ids = self._table.ids[positions + (begins - starts)[:, None]].astype(np.int64)
        return Steps(ids, positions, valid, epoch, group.consumed[which].tolist())
