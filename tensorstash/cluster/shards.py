"""The shards that one node holds, which node holds which, and which node this is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace
from typing import Any

import numpy as np

from tensorstash.cluster.manifest import Manifest
from tensorstash.common.dtypes import Int64s
from tensorstash.common.keywords import made_by
from tensorstash.common.public import members
from tensorstash.stash.stash import Stash


def assign(rows: Sequence[int], nodes: int) -> list[tuple[int, ...]]:
    """The numbers of the shards of each node, ascending: the longest shard first, to the node with the fewest rows.

    Shards of equal length go by number, and nodes with equally many rows too.
    """
    held: list[list[int]] = [[] for _ in range(nodes)]
    least = [(0, node) for node in range(nodes)]  # a heap: the rows so far, and the node
    for shard in sorted(range(len(rows)), key=lambda shard: -rows[shard]):
        total, node = least[0]
        held[node].append(shard)
        heapreplace(least, (total + rows[shard], node))
    return [tuple(sorted(shards)) for shards in held]


@made_by("ts.cluster.open(directory)", Manifest)
@dataclass(frozen=True, eq=False)
class Shards:
    """The shards that this node holds, out of all that the manifest lists; `ts.cluster.open` returns it.

    Attributes:
        manifest: the record of all shards, the same on every node.
        node: the number of this node, from 0 on.
        nodes: the number of nodes.
        stashes: the stash of each shard that this node holds, by the shard's number, ascending.
        index: a stash with a row for each entity of all shards: its shard, `index["shard"]`, and its rows there,
            `index["rows"]`.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data, where = {"shop": ["A", "B", "C", "D"], "sold": [5.0, 6.0, 7.0, 8.0]}, tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
        >>> shards = ts.cluster.open(where)
        >>> shards.node, shards.nodes, shards.held, shards.entities
        (0, 1, (0, 1), ['A', 'C', 'D', 'B'])
        >>> [stash.rows for stash in shards.stashes.values()]
        [3, 1]
    """

    manifest: Manifest
    node: int
    nodes: int
    origin: str  # where `node` and `nodes` came from, for messages
    stashes: Mapping[int, Stash]
    index: Stash

    @property
    def held(self) -> tuple[int, ...]:
        """The numbers of the shards that this node holds, ascending."""
        return tuple(self.stashes)

    def holds(self, nodes: int) -> list[tuple[int, ...]]:
        """The numbers of the shards that each node holds, if there are so many nodes."""
        return assign([shard.rows for shard in self.manifest.shards], nodes)

    @cached_property
    def entities(self) -> list[Any]:
        """The names of the entities of all shards, on every node: by shard, and as in the stash of the shard."""
        names = self.index.entities
        return [names[place] for place in np.argsort(self.index["shard"].numpy(), kind="stable").tolist()]

    @cached_property
    def entity_offsets(self) -> Int64s:
        """`(shards + 1,)` int64: shard k has the entities `entity_offsets[k]` up to `entity_offsets[k + 1]`."""
        return np.append(0, np.cumsum([shard.entities for shard in self.manifest.shards], dtype=np.int64))

    __dir__ = members

    def __repr__(self) -> str:
        held_rows = sum(self.manifest.shards[shard].rows for shard in self.held)
        return (
            f"Shards: {self.manifest.rows:,} rows of {int(self.entity_offsets[-1]):,} entities in "
            f"{len(self.manifest.shards):,} shards; node {self.node} of {self.nodes} ({self.origin}) holds "
            f"{len(self.held):,} of them, {held_rows:,} rows"
        )
