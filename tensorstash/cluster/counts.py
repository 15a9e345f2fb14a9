"""`exchange_counts`: each node tells the others how many windows each of its shards has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch.distributed as dist

from tensorstash.sampling.sharded import Count, ShardedWindows, together


class Told(NamedTuple):
    """What a rank tells the others."""

    node: int
    nodes: int
    described: dict[str, Any] | None  # the spans and the stride of its windows, if it has any
    counts: dict[int, Count]


def exchange_counts(windows: ShardedWindows, group: Any = None) -> ShardedWindows:
    """The same windows, with the number of windows in each shard of all nodes: a few integers per shard.

    This is a collective: every rank calls it, once for each part after the last split. A loader over several nodes
    needs it; then no batch, length or state needs to talk to another rank. One node without a process group exchanges
    nothing.

    Args:
        windows: of the shards of this node.
        group: the process group of the data ranks of all nodes; `None` for the default one.

    Raises:
        ValueError: there is no process group for several nodes; or ranks disagree about the nodes, the shards or the
            windows, which all ranks find alike.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["A", "B"] * 4, "hour": [0, 0, 1, 1, 2, 2, 3, 3], "temp": [0.5] * 8}
        >>> where = tempfile.mkdtemp()
        >>> made = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=4, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2)
        >>> windows = ts.cluster.exchange_counts(windows)
        >>> sum(int(batch["valid"].sum()) for batch in ts.Loader(windows, batch_size=4))
        6
    """
    division = windows.division
    own = Told(division.node, division.nodes, windows.described(), windows.own_counts())
    counts = agreed(everyone(own, division.nodes, group), len(division.entity_offsets) - 1)
    return replace(windows, counts=together(counts))


def everyone(own: Any, nodes: int, group: Any) -> list[Any]:
    """What each rank gave, by rank: a collective, unless there is one node and no process group."""
    if dist.is_available() and dist.is_initialized():
        told: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(told, own, group=group)
        return told
    if nodes > 1:
        raise ValueError(
            f"The {nodes} nodes exchange numbers through a process group, and there is none. Call "
            "torch.distributed.init_process_group() first, on every rank."
        )
    return [own]


def agreed(told: Sequence[Told], shards: int) -> list[Count]:
    """The count of each shard, if what the ranks have told fits together."""
    totals = Counter(one.nodes for one in told)
    if len(totals) > 1:
        raise ValueError(
            f"All ranks open shards for the same number of nodes; got {_several(totals)}. See nodes= of "
            "ts.cluster.open."
        )
    described = {repr(one.described) for one in told if one.described is not None}
    if len(described) > 1:
        raise ValueError(
            f"All ranks have windows of the same spans and stride; got {' and '.join(sorted(described)[:2])}. Use the "
            "same arguments on every rank."
        )
    counts: dict[int, Count] = {}
    for rank, one in enumerate(told):
        for shard, count in one.counts.items():
            if counts.setdefault(shard, count) != count:
                raise ValueError(
                    f"All ranks that hold a shard have the same windows of it; of shard {shard}, rank {rank} has "
                    f"{count}, and an earlier one {counts[shard]}. Use the same arguments on every rank."
                )
    if missing := [shard for shard in range(shards) if shard not in counts]:
        raise ValueError(
            f"Each shard is held by a node, and {len(missing):,} by none of these, such as shard {missing[0]}: nodes "
            f"{_several(Counter(one.node for one in told))}. See node= and nodes= of ts.cluster.open, and group=."
        )
    return [counts[shard] for shard in range(shards)]


def _several(counted: "Counter[int]") -> str:
    return ", ".join(f"{value} ({ranks} ranks)" for value, ranks in sorted(counted.items()))
