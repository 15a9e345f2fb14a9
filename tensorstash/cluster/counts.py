"""`exchange_counts`: each node tells the others how many windows each of its shards has."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from tensorstash.sampling.sharded import Count, ShardedWindows


def exchange_counts(windows: ShardedWindows, group: Any = None) -> ShardedWindows:
    """The same windows, with the number of windows in each shard of all nodes: a few integers per shard.

    This is a collective: every rank calls it, once for each part after the last split. A loader over several nodes
    needs it; then no batch, length or state needs to talk to another rank. On one node without a process group it needs
    nobody.

    Args:
        windows: of the shards of this node.
        group: the process group of the data ranks of all nodes; `None` for the default one.

    Raises:
        ValueError: there is no process group for several nodes; or ranks disagree about the nodes, the shards or the
            windows. All ranks raise it.
    """
    division = windows.division
    own = (division.node, division.nodes, windows.described(), windows.own_counts())
    told = everyone(own, division.nodes, group)
    nodes = Counter(total for _, total, _, _ in told)
    if len(nodes) > 1:
        raise ValueError(
            f"All ranks open shards for the same number of nodes; got {_several(nodes)}. See nodes= of ts.cluster.open."
        )
    if len({repr(about) for _, _, about, _ in told if about is not None}) > 1:
        raise ValueError("All ranks have windows of the same spans and stride; these differ. Use the same arguments.")
    counts: dict[int, Count] = {}
    for node, _, _, counted in told:
        for shard, count in counted.items():
            if counts.setdefault(shard, Count(*count)) != Count(*count):
                raise ValueError(
                    f"All ranks that hold a shard count the same windows; of shard {shard}, which node {node} holds, "
                    f"one has {counts[shard].windows:,} and one {count[0]:,}, or others. Use the same arguments."
                )
    if missing := {*range(len(division.entity_offsets) - 1)} - counts.keys():
        raise ValueError(
            f"Each shard is held by a node; {len(missing)} are held by none, such as shard {min(missing)}. Nodes "
            f"{_several(Counter(node for node, *_ in told))} of {division.nodes} took part: see node= of "
            "ts.cluster.open and group=."
        )
    return replace(windows, counts=[counts[shard] for shard in sorted(counts)])


def everyone(own: Any, nodes: int, group: Any) -> list[Any]:
    """What each rank gave, by rank: a collective, unless there is one node and no process group."""
    if not (dist.is_available() and dist.is_initialized()):
        if nodes > 1:
            raise ValueError(
                f"The {nodes} nodes exchange numbers through a process group, and there is none. Call "
                "torch.distributed.init_process_group() first, on every rank."
            )
        return [own]
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, own, group=group)
    return told


def _several(counted: "Counter[int]") -> str:
    return ", ".join(f"{value} ({ranks} ranks)" for value, ranks in sorted(counted.items()))
