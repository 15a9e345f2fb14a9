"""Whole batches of the shards of a node: those of a mix, with entities numbered over all shards."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorstash.batches.assemble_mix import MixAssembler
from tensorstash.batches.buffers import Built, Recycled
from tensorstash.batches.staging import Staged
from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.sampling.steps import Layout, Steps
from tensorstash.windows.windows import Windows


class ShardedAssembler:
    """Makes the batches of a loader over shards. They always hold `valid`, because any batch may hold filler."""

    def __init__(self, windows: ShardedWindows, memory: Recycled | Staged, *, with_ids: bool) -> None:
        self._mixed = MixAssembler(windows.mix_of_node(), memory, with_ids=with_ids, with_valid=True)
        self.memory = memory
        self.plan = self._mixed.plan
        self.windows = self._mixed.windows
        self.static = self._mixed.static
        self._shards = np.array([*windows.parts], np.int64)
        self._first_entity = windows.division.entity_offsets[self._shards]

    def prepare(self, steps: Steps, layout: Layout, lanes: Lanes | None) -> Any:
        """As that of a mix, but `entity` counts over all shards, and `source` is the number of the shard."""
        group = self._mixed.prepare(steps, layout, lanes)
        if "source" in group.extras:
            component = group.extras["source"]
            group.extras["entity"] += self._first_entity[component]
            group.extras["source"] = self._shards[component]
        return group

    def portions(self, group: Any, steps: int) -> Iterator[range]:
        """The steps of a group, as they are built together."""
        return self._mixed.portions(group, steps)

    def needed(self, group: Any, steps: range) -> Iterator[tuple[Windows, Int64s]]:
        """The windows of each shard that these steps hold, and the slots of their anchors."""
        return self._mixed.needed(group, steps)

    def build(self, group: Any, steps: range) -> list[Built]:
        """The batches of some steps."""
        return self._mixed.build(group, steps)
