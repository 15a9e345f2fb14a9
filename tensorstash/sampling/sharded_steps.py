"""The steps of an epoch over shards: what each node shows, which windows a rank has, and what is filler.

Each node holds some of the shards, and mixes what is left of them in proportion, as a `Mix` without weights. A leg is a
number of steps with one layout: nodes, ranks of each node, batch size. Given the number of windows in each shard, the
legs of an epoch tell how many windows of each shard have been shown, whichever nodes held it. So an epoch can continue
on another number of nodes. The arithmetic is on Python's integers, of any size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.components import Components, in_epoch
from tensorstash.sampling.steps import Consumed, Layout, Leg, Legs, Steps
from tensorstash.sampling.tree import choose, counts, tree

Holds = Callable[[int], Sequence[Sequence[int]]]  # from a number of nodes to the shards of each node, ascending


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable:
    """The windows of all shards, known to every rank."""

    windows: Sequence[int]  # of each shard; an array of int64 takes the least memory
    holds: Holds


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """What the nodes have left to show when a leg begins, and in how many steps."""

    held: Sequence[Sequence[int]]  # the shards of each node
    shown: Sequence[int]  # windows of each shard in earlier legs
    left: Sequence[int]  # other windows of each shard
    totals: Sequence[int]  # windows that each node has left
    steps: int  # until every node has shown all of them


def shown_after(steps: int, total: int, every: int) -> int:
    """How many windows a node has shown after `steps` of the `every` steps in which it shows `total`.

    A node with fewer windows than another shows fewer in every part of the leg, which spreads the filler.
    """
    return total * steps // every if every else 0


def remainder(table: ShardTable, shown: Sequence[int], nodes: int, size: int) -> Remainder:
    """What the nodes have left after `shown` windows of each shard, if each shows up to `size` windows per step."""
    held = table.holds(nodes)
    left = [count - before for count, before in zip(table.windows, shown)]
    totals = [sum(left[shard] for shard in shards) for shards in held]
    return Remainder(held, shown, left, totals, -(-max(totals, default=0) // size))


def fold(table: ShardTable, legs: Legs) -> list[int]:
    """How many windows of each shard these legs have shown. A leg longer than what was left is a `ValueError`."""
    shown = [0] * len(table.windows)
    for leg in legs:
        part = remainder(table, shown, leg.nodes, leg.size)
        if leg.steps > part.steps:
            raise ValueError(
                f"A leg must have at most as many steps as are left, {part.steps:,} for {leg.nodes} nodes with "
                f"{leg.ranks} ranks and batches of {leg.batch_size}, got {leg.steps:,} in the state."
            )
        for shards, total in zip(part.held, part.totals):
            if total:
                mixed = tree([part.left[shard] for shard in shards])
                for shard, taken in zip(shards, counts(mixed, shown_after(leg.steps, total, part.steps))):
                    shown[shard] += taken
    return shown


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """What a rank needs to sample the shards of its node."""

    table: ShardTable
    node: int
    nodes: int
    shards: tuple[int, ...]  # of this node: component k is shard `shards[k]`
    of: Components
    shuffle: bool

    def leg(self, layout: Layout, steps: int) -> Leg:
        """A leg of `steps` steps with a layout, whose ranks must be as many on each node."""
        each, rest = divmod(layout.ranks, self.nodes)
        if rest or not each:
            raise ValueError(
                f"All nodes must have equally many ranks, got {layout.ranks} ranks on {self.nodes} nodes. Start "
                "equally many on each, or see node= and nodes= of ts.cluster.open."
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
        part, _, taken = self._last_leg(consumed, layout)
        return part.steps - taken

    def _last_leg(self, consumed: Consumed, layout: Layout) -> tuple[Remainder, Legs, int]:
        """What was left when this layout began, the legs before it, and the steps already taken with it."""
        leg, legs, taken = self.leg(layout, 0), _legs(consumed), 0
        if legs and legs[-1][:3] == leg[:3]:
            legs, taken = legs[:-1], legs[-1].steps
        return remainder(self.table, fold(self.table, legs), self.nodes, leg.size), legs, taken

    def state(self, consumed: Consumed) -> dict[str, Any]:
        """The progress of an epoch as plain values: the windows that all ranks have used, and the legs."""
        legs = _legs(consumed)
        return {"consumed": sum(fold(self.table, legs)), "legs": [list(leg) for leg in legs]}

    def loaded(self, legs: object) -> Legs:
        """The legs of a state, checked."""
        if not isinstance(legs, Sequence) or not all(isinstance(leg, Sequence) and len(leg) == 4 for leg in legs):
            raise ValueError(f"legs must list [nodes, ranks of a node, batch size, steps] per layout, got {legs!r}.")
        loaded = tuple(Leg(*(at_least(1, value, "a number in legs") for value in leg)) for leg in legs)
        fold(self.table, loaded)
        return loaded

    def steps_after(
        self, seed: int, epoch: int, consumed: Consumed, layout: Layout, most: int | None
    ) -> Iterator[Steps]:
        """The steps left in an epoch, at most `most`, in groups that are computed together."""
        part, earlier, taken = self._last_leg(consumed, layout)
        end = part.steps if most is None else min(part.steps, taken + most)
        at, total, every = self._order(part, seed, epoch), part.totals[self.node], part.steps
        del part  # it has a few numbers for each shard, and the pass may take hours
        per_group = max(1, self.of.block // layout.batch_size)
        nodes, ranks, size, _ = self.leg(layout, 0)
        for first in range(taken, end, per_group):
            steps = range(first, min(first + per_group, end))
            done = [shown_after(step, total, every) for step in (*steps, steps.stop)]
            left, mine = _shared(np.array(done, np.int64), layout, ranks)
            ids, positions = (numbers.reshape(left.shape) for numbers in at(left.reshape(-1)))
            after = [(*earlier, Leg(nodes, ranks, size, step + 1)) for step in steps]
            yield Steps(ids, positions, mine[:, None], epoch, after)

    def _order(self, part: Remainder, seed: int, epoch: int) -> Callable[[Int64s], tuple[Int64s, Int64s]]:
        """A function from positions in this node's remainder to window numbers in its shards, and to keys' positions.

        Windows are numbered one shard after the other. The positions are those in the orders of all shards, likewise
        concatenated, so that they depend on no node and no leg.
        """
        first = np.cumsum([0, *self.table.windows])[[*self.shards]]
        if not part.totals[self.node]:  # only filler is left
            return lambda left: (np.zeros_like(left), np.full_like(left, first[0]))
        mixed = tree([part.left[shard] for shard in self.shards])  # other held shards have no windows
        begun = np.array([part.shown[shard] for shard in self.shards], np.int64)
        permuted = in_epoch(self.of, seed, epoch) if self.shuffle else None

        def at(left: Int64s) -> tuple[Int64s, Int64s]:
            component, within, before = choose(mixed, left)
            within += (begun + before)[component]
            positions = first[component] + within
            if permuted is not None:
                within = permuted(component, within)
            return self.of.flat(component, within), positions

        return at


def _legs(consumed: Consumed) -> Legs:
    return consumed if isinstance(consumed, tuple) else ()  # an epoch that has not begun has consumed 0


def _shared(done: Int64s, layout: Layout, ranks: int) -> tuple[Int64s, Int64s]:
    """The positions of this rank in each step, `(steps, batch)`, and how many of them are not filler, `(steps,)`.

    `done`, `(steps + 1,)`, are the windows that the node has shown before each step and after the last one. Its ranks
    share the windows of a step in parts that differ by at most one. Filler repeats the first window of the step; if the
    step has none, it is the node's next window.
    """
    rank = layout.rank % ranks
    share, more = np.divmod(np.diff(done), ranks)
    mine = share + (rank < more)
    first = done[:-1] + rank * share + np.minimum(rank, more)
    place = np.arange(layout.batch_size)
    return np.where(place < mine[:, None], first[:, None] + place, done[:-1, None]), mine
