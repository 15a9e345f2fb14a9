"""The steps of one rank over the shards of its node: where each begins, which windows it has, and what is filler."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.native.permutation import BLOCK, Order
from tensorstash.sampling.components import Components, in_epoch
from tensorstash.sampling.legs import (
    Consumed,
    Leg,
    Legs,
    Stretch,
    Table,
    divided,
    fold,
    legs_of,
    stretch,
    windows_shown,
)
from tensorstash.sampling.shares import choose, tree
from tensorstash.sampling.steps import Layout, Steps

_MANY = 100  # shards of a node, from which larger calls pay for their fixed cost
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """What a rank needs to sample the shards of its node."""

    table: Table
    node: int
    nodes: int
    shards: tuple[int, ...]  # of this node: component k is shard `shards[k]`
    of: Components
    shuffle: bool

    def leg(self, layout: Layout, steps: int) -> Leg:
        """So many steps with a layout.

        Raises:
            ValueError: the ranks are not divided equally among the nodes, or this rank is of another node.
        """
        each, rest = divmod(layout.ranks, self.nodes)
        if rest or not each:
            raise ValueError(
                f"Each node has as many ranks as any other; got {layout.ranks} ranks on {self.nodes} nodes. Start as "
                "many on each, or see node= and nodes= of ts.cluster.open."
            )
        if layout.rank // each != self.node:
            raise ValueError(
                f"Ranks are numbered node by node; rank {layout.rank} of {layout.ranks} is on node "
                f"{layout.rank // each} of {self.nodes}, and the shards were opened as node {self.node}. See node= and "
                "nodes= of ts.cluster.open."
            )
        return Leg(self.nodes, each, layout.batch_size, steps)

    def steps_left(self, consumed: Consumed, layout: Layout) -> int:
        """The steps of an epoch that are left."""
        part, _, taken = self._stretch(consumed, layout)
        return part.steps - taken

    def _stretch(self, consumed: Consumed, layout: Layout) -> tuple[Stretch, Legs, int]:
        """The stretch of the epoch that has this layout, the legs before it, and the steps taken in it already."""
        leg = self.leg(layout, 0)
        earlier, taken = divided(legs_of(consumed), *leg[:3])
        return stretch(self.table, earlier, self.nodes, leg.size), earlier, taken

    def state(self, consumed: Consumed) -> dict[str, Any]:
        """How far an epoch is, as plain values: the windows that all ranks have used, and the legs."""
        legs = legs_of(consumed)
        return {"consumed": windows_shown(self.table, legs), "legs": [list(leg) for leg in legs]}

    def loaded(self, legs: object) -> Legs:
        """The legs of a state.

        Raises:
            ValueError: they are not legs, or have more steps than this table of windows.
        """
        if not isinstance(legs, Sequence) or not all(isinstance(leg, Sequence) and len(leg) == 4 for leg in legs):
            raise ValueError(f"legs= lists [nodes, ranks of a node, batch size, steps] per layout; got {legs!r}.")
        made = tuple(Leg(*(at_least(1, value, "a number in legs") for value in leg)) for leg in legs)
        fold(self.table, made)
        return made

    def cut(self, seed: int, epoch: int, consumed: Consumed, layout: Layout, most: int | None) -> Iterator[Steps]:
        """The steps of an epoch that are left, at most `most` of them, in groups that are computed together."""
        part, earlier, taken = self._stretch(consumed, layout)
        end = part.steps if most is None else min(part.steps, taken + most)
        at, own = self._order(part, seed, epoch), part.own(self.node)
        del part  # it has a few numbers for each shard, and the pass may take hours
        block = BLOCK if len(self.shards) <= _MANY else _BLOCK
        together = max(1, block // layout.batch_size)
        nodes, ranks, size, _ = self.leg(layout, 0)
        for first in range(taken, end, together):
            steps = range(first, min(first + together, end))
            done = [own.done(step) for step in (*steps, steps.stop)]
            positions, mine = _shared(np.array(done, np.int64), layout, ranks)
            ids = at(positions.reshape(-1)).reshape(positions.shape)
            yield Steps(ids, mine[:, None], epoch, [(*earlier, Leg(nodes, ranks, size, step + 1)) for step in steps])

    def _order(self, part: Stretch, seed: int, epoch: int) -> Order:
        """Positions in what is left for this node to window numbers in the concatenation of its shards."""
        if not part.totals[self.node]:  # every step is filler
            return np.zeros_like
        mixed = tree([part.left[shard] for shard in self.shards])  # held shards that are not here have no windows
        begun = np.array([part.shown[shard] for shard in self.shards], np.int64)
        permuted = in_epoch(self.of, seed, epoch) if self.shuffle else None

        def at(positions: Int64s) -> Int64s:
            component, own = choose(mixed, positions)
            own += begun[component]
            if permuted is not None:
                own = permuted(component, own)
            return self.of.flat(component, own)

        return at


def _shared(done: Int64s, layout: Layout, ranks: int) -> tuple[Int64s, Int64s]:
    """The positions of this rank in each step, `(steps, batch)`, and how many of them are not filler, `(steps,)`.

    The ranks of a node share the windows of a step in parts that differ by at most one. Filler repeats the first window
    of the step; if the step has none, it is the node's next window.

    Args:
        done: `(steps + 1,)` how many windows the node has shown before each step and behind the last one.
        layout: of all ranks.
        ranks: of this node.
    """
    rank = layout.rank % ranks
    share, more = np.divmod(np.diff(done), ranks)
    mine = share + (rank < more)
    first = done[:-1] + rank * share + np.minimum(rank, more)
    place = np.arange(layout.batch_size)
    return np.where(place < mine[:, None], first[:, None] + place, done[:-1, None]), mine
