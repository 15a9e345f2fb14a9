"""Legs: how many windows of each shard are shown after some steps of an epoch on some nodes.

Each node holds some of the shards, and mixes what is left of them in proportion, as a `Mix` without weights. A leg is a
number of steps with one layout: nodes, ranks of each node, batch size. Given the number of windows in each shard, the
legs of an epoch tell how many windows of each shard have been shown, whichever nodes held it. So an epoch can continue
on another number of nodes. The arithmetic is on Python's integers, of any size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorstash.sampling.tree import counts, tree

Holds = Callable[[int], Sequence[Sequence[int]]]  # maps a number of nodes to the shards of each node, ascending


class Leg(NamedTuple):
    """A number of steps of an epoch, taken with one layout."""

    nodes: int
    ranks: int  # ranks of each node
    batch_size: int
    steps: int

    @property
    def size(self) -> int:
        """The most windows that a node shows in a step."""
        return self.ranks * self.batch_size


Legs = tuple[Leg, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable:
    """The number of windows in each shard, which every rank knows."""

    windows: Sequence[int]  # windows of each shard
    holds: Holds


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """What the nodes have left to show when a leg begins, and in how many steps."""

    shown: Sequence[int]  # windows of each shard that earlier legs have shown
    left: Sequence[int]  # windows of each shard that are still to be shown
    totals: Sequence[int]  # windows that each node has left
    steps: int  # steps until every node has shown all that it has left


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
    return Remainder(shown, left, totals, -(-max(totals, default=0) // size))


def fold(table: ShardTable, legs: Legs) -> list[int]:
    """How many windows of each shard these legs have shown; raises `ValueError` for a leg with too many steps."""
    shown = [0] * len(table.windows)
    for leg in legs:
        part = remainder(table, shown, leg.nodes, leg.size)
        if leg.steps > part.steps:
            raise ValueError(
                f"A leg must have at most as many steps as are left, {part.steps:,} for {leg.nodes} nodes with "
                f"{leg.ranks} ranks and batches of {leg.batch_size}, got {leg.steps:,} in the state."
            )
        for shards, total in zip(table.holds(leg.nodes), part.totals):
            if total:
                mixed = tree([part.left[shard] for shard in shards])
                for shard, taken in zip(shards, counts(mixed, shown_after(leg.steps, total, part.steps))):
                    shown[shard] += taken
    return shown
