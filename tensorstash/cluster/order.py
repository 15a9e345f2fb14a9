"""The order of an epoch over shards, of which each node holds some.

Every node mixes what is left of its shards in proportion, as a `ts.Mix` without weights. All nodes take as many steps
as the one with the most windows; the others show fewer windows per step, which spreads the filler. The progress of an
epoch is its legs, none if it has not begun.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorstash.cluster.legs import Leg, Legs, Remainder, ShardTable, fold, remainder, shown_after
from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.components import Components, in_epoch
from tensorstash.sampling.order import Order
from tensorstash.sampling.steps import Layout, Progress, Steps, Tail, share
from tensorstash.sampling.tree import choose, tree


class ShardedOrder(Order):
    """The order of the windows of shards, as a rank of one node samples them."""

    has_filler = True

    def __init__(
        self,
        table: ShardTable,
        node: int,
        nodes: int,
        shards: Sequence[int],
        components: Components,
        *,
        shuffle: bool,
    ) -> None:
        self.name = f"shards, {'shuffled' if shuffle else 'interleaved'}"
        self.positions = sum(table.windows)
        self.is_seeded = shuffle
        self._table = table
        self._node = node
        self._nodes = nodes
        self._shards = [*shards]  # the shards of this node: component k is shard `shards[k]`
        self._components = components
        self._shuffle = shuffle

    def check_tail(self, tail: Tail, *, varies: bool) -> None:
        """Refuse to leave out incomplete steps, because every step may have filler."""
        if tail == "drop":
            raise ValueError(
                'tail="drop" leaves out steps that are not full, but over shards filler is spread over all steps of an '
                'epoch. Use tail="keep" or "pad", which fill every batch up to batch_size.'
            )

    def check_layout(self, layout: Layout) -> None:
        """Refuse ranks that do not fit the nodes."""
        self._leg(layout, 0)

    def count(self, seed: int, epoch: int, layout: Layout, since: Progress) -> int:
        """The number of steps left in an epoch."""
        part, _, taken = self._last_leg(since, layout)
        return part.steps - taken

    def after(self, seed: int, epoch: int, steps: int, layout: Layout) -> Progress:
        """The leg of the first `steps` steps of an epoch."""
        return (self._leg(layout, steps),) if steps else None

    def dump(self, epoch: int, progress: Progress) -> dict[str, Any]:
        """The number of windows that all ranks have used, and the legs."""
        legs: Legs = progress or ()
        return {"consumed": sum(fold(self._table, legs)), "legs": [list(leg) for leg in legs]}

    def load(self, state: Mapping[str, Any]) -> Progress:
        """The legs of a state, checked."""
        super().load(state)
        legs = state["legs"]
        if not isinstance(legs, Sequence) or not all(isinstance(leg, Sequence) and len(leg) == 4 for leg in legs):
            raise ValueError(f"legs must list [nodes, ranks of a node, batch size, steps] per layout, got {legs!r}.")
        loaded = tuple(Leg(*(at_least(1, value, "a number in legs") for value in leg)) for leg in legs)
        fold(self._table, loaded)
        return loaded or None

    def steps(self, seed: int, epoch: int, since: Progress, layout: Layout, most: int | None) -> Iterator[Steps]:
        """The rank's part of the steps left in an epoch."""
        part, earlier, taken = self._last_leg(since, layout)
        end = part.steps if most is None else min(part.steps, taken + most)
        at, total, every = self._at(part, seed, epoch), part.totals[self._node], part.steps
        per_group = max(1, self._components.block // layout.batch_size)
        nodes, ranks, size, _ = self._leg(layout, 0)
        on_node = replace(layout, ranks=ranks, rank=layout.rank % ranks, tail="pad")
        for first in range(taken, end, per_group):
            steps = range(first, min(first + per_group, end))
            done = np.array([shown_after(step, total, every) for step in (*steps, steps.stop)], np.int64)
            left, valid = share(done[:-1], np.diff(done), on_node)
            ids, positions = (numbers.reshape(left.shape) for numbers in at(left.reshape(-1)))
            after = [(*earlier, Leg(nodes, ranks, size, step + 1)) for step in steps]
            yield Steps(ids, positions, valid, epoch, after)

    def _leg(self, layout: Layout, steps: int) -> Leg:
        """A leg of `steps` steps with a layout, whose ranks must be as many on each node."""
        each, rest = divmod(layout.ranks, self._nodes)
        if rest or not each:
            raise ValueError(
                f"All nodes must have equally many ranks, got {layout.ranks} ranks on {self._nodes} nodes. Start "
                "equally many on each, or see node= and nodes= of ts.cluster.open."
            )
        if layout.rank // each != self._node:
            raise ValueError(
                f"Ranks are numbered node by node; rank {layout.rank} of {layout.ranks} is on node "
                f"{layout.rank // each} of {self._nodes}, and the shards were opened as node {self._node}. See node= "
                "and nodes= of ts.cluster.open."
            )
        return Leg(self._nodes, each, layout.batch_size, steps)

    def _last_leg(self, progress: Progress, layout: Layout) -> tuple[Remainder, Legs, int]:
        """What was left when this layout began, the legs before it, and the steps already taken with it."""
        legs: Legs = progress or ()
        leg, taken = self._leg(layout, 0), 0
        if legs and legs[-1][:3] == leg[:3]:
            legs, taken = legs[:-1], legs[-1].steps
        return remainder(self._table, fold(self._table, legs), self._nodes, leg.size), legs, taken

    def _at(self, part: Remainder, seed: int, epoch: int) -> Callable[[Int64s], tuple[Int64s, Int64s]]:
        """A function from positions in this node's remainder to ids of its windows, and to positions in the epoch.

        Ids number the windows of this node one shard after the other. The positions are those in the orders of all
        shards, likewise concatenated, so that they depend on no node and no leg.
        """
        first = np.cumsum([0, *self._table.windows])[self._shards]
        if not part.totals[self._node]:  # only filler is left
            return lambda left: (np.zeros_like(left), np.full_like(left, first[0]))
        components = self._components
        mixed = tree([part.left[shard] for shard in self._shards])  # other held shards have no windows
        begun = np.array([part.shown[shard] for shard in self._shards], np.int64)
        permuted = in_epoch(components, seed, epoch) if self._shuffle else None

        def at(left: Int64s) -> tuple[Int64s, Int64s]:
            component, within, before = choose(mixed, left)
            within += (begun + before)[component]
            positions = first[component] + within
            if permuted is not None:
                within = permuted(component, within)
            return components.flat(component, within), positions

        return at
