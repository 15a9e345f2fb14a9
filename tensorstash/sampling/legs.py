"""Legs: how far an epoch over shards has come, in a few integers per layout that it was sampled with.

Each node holds some of the shards, and mixes what is left of them in proportion, as a `Mix` without weights. A leg is a
number of steps with one layout: nodes, ranks of each node, batch size. Given the number of windows in each shard, the
legs of an epoch tell how many windows of each shard have been shown, whichever nodes had held it. So an epoch goes on
over another number of nodes with what is left. Everything here is arithmetic on integers of any size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorstash.sampling.shares import counts, tree


class Leg(NamedTuple):
    """So many steps of an epoch with one layout."""

    nodes: int
    ranks: int  # of each node
    batch_size: int
    steps: int

    @property
    def size(self) -> int:
        """The most windows that a node shows in a step."""
        return self.ranks * self.batch_size


Legs = tuple[Leg, ...]
Consumed = int | Legs  # how far an epoch is: windows of its order that all ranks have used; over shards, its legs
Holds = Callable[[int], Sequence[Sequence[int]]]  # from a number of nodes to the shards of each node, ascending


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What every rank knows of all shards."""

    windows: Sequence[int]  # of each shard; an array of int64 takes the least memory
    holds: Holds


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What the nodes have left to show when a leg begins, and in how many steps they show it."""

    held: Sequence[Sequence[int]]  # the shards of each node
    shown: Sequence[int]  # windows of each shard that earlier legs have shown
    left: Sequence[int]  # windows of each shard that are left
    totals: Sequence[int]  # windows that each node has left
    steps: int  # until every node has shown all of them

    def own(self, node: int) -> "Own":
        """What one node has left."""
        return Own(self.totals[node], self.steps)


class Own(NamedTuple):
    """What one node has left to show when a leg begins, and in how many steps."""

    total: int
    steps: int

    def done(self, steps: int) -> int:
        """How many of its windows the node has shown after so many steps of the leg.

        A node with fewer windows than another shows fewer in every part of the leg, so that filler is spread over it.
        """
        return self.total * steps // self.steps if self.steps else 0


def stretch(table: Table, legs: Legs, nodes: int, size: int) -> Stretch:
    """What is left behind the legs, for so many nodes that each show up to `size` windows in a step.

    Example:
        >>> table = Table([6, 2, 1], lambda nodes: [(0,), (1, 2)] if nodes == 2 else [(0, 1, 2)])
        >>> stretch(table, (), nodes=2, size=2)
        Stretch(held=[(0,), (1, 2)], shown=[0, 0, 0], left=[6, 2, 1], totals=[6, 3], steps=3)
        >>> stretch(table, (Leg(nodes=2, ranks=1, batch_size=2, steps=1),), nodes=1, size=4)
        Stretch(held=[(0, 1, 2)], shown=[2, 1, 0], left=[4, 1, 1], totals=[6], steps=2)
    """
    return _from(table, fold(table, legs), nodes, size)


def fold(table: Table, legs: Legs) -> list[int]:
    """How many windows of each shard all nodes together have shown in these legs.

    Raises:
        ValueError: a leg has more steps than were left.
    """
    shown = [0] * len(table.windows)
    for leg in legs:
        part = _from(table, shown, leg.nodes, leg.size)
        if leg.steps > part.steps:
            raise ValueError(
                f"A leg ends when all windows have been shown; {leg.nodes} nodes with {leg.ranks} ranks and batches of "
                f"{leg.batch_size} have {part.steps:,} steps left, and the state says {leg.steps:,}."
            )
        for node, shards in enumerate(part.held):
            if part.totals[node]:
                mixed = tree([part.left[shard] for shard in shards])
                for shard, taken in zip(shards, counts(mixed, part.own(node).done(leg.steps))):
                    shown[shard] += taken
    return shown


def _from(table: Table, shown: Sequence[int], nodes: int, size: int) -> Stretch:
    held = table.holds(nodes)
    left = [count - before for count, before in zip(table.windows, shown)]
    totals = [sum(left[shard] for shard in shards) for shards in held]
    return Stretch(held, shown, left, totals, -(-max(totals, default=0) // size))


def windows_shown(table: Table, legs: Legs) -> int:
    """How many windows of the epoch all nodes together have shown."""
    if not legs:
        return 0
    *earlier, leg = legs
    part = stretch(table, tuple(earlier), leg.nodes, leg.size)
    return sum(part.shown) + sum(part.own(node).done(leg.steps) for node in range(leg.nodes))


def legs_of(consumed: Consumed) -> Legs:
    """The legs of an epoch over shards; an epoch that has not begun has none."""
    return consumed if isinstance(consumed, tuple) else ()


def divided(legs: Legs, nodes: int, ranks: int, batch_size: int) -> tuple[Legs, int]:
    """The legs before that of a layout, and the steps that were taken in it: the last leg goes on if it has it.

    Example:
        >>> divided((Leg(1, 2, 8, 5), Leg(2, 2, 8, 3)), nodes=2, ranks=2, batch_size=8)
        ((Leg(nodes=1, ranks=2, batch_size=8, steps=5),), 3)
    """
    if legs and legs[-1][:3] == (nodes, ranks, batch_size):
        return legs[:-1], legs[-1].steps
    return legs, 0
