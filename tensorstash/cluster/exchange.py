"""The two calls that talk to other nodes: `exchange_counts` and `fit_scaler`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch.distributed as dist

from tensorstash.cluster.shard_statistics import of_all, of_node
from tensorstash.cluster.sharded_windows import ShardCount, ShardedWindows, counts_of_node, shared_fingerprint
from tensorstash.common.checks import flag, names_in, one_of, shown
from tensorstash.common.text import type_text
from tensorstash.errors import NoWindowError
from tensorstash.transforms.fitting import Kind, Unknown, check_kind
from tensorstash.transforms.scaler import Scaler, scaler_of


class RankCounts(NamedTuple):
    """What a rank tells the others of its windows."""

    node: int
    nodes: int
    windows: dict[str, Any] | None  # what those of all ranks share; `None` if the rank has no window
    counts: dict[int, ShardCount]


def exchange_counts(windows: ShardedWindows, group: Any = None) -> ShardedWindows:
    """Return the same windows, with the number of windows in each shard of all nodes: a few integers per shard.

    This is a collective: every rank calls it, once for each part after the last split. A loader over several nodes
    needs it. Without a process group, one node exchanges nothing.

    Args:
        windows: the windows of the shards of this node.
        group: the process group of the data ranks of all nodes; `None` is the default group.

    Returns:
        New windows, whose `counts` are those of all shards.

    Raises:
        ValueError: there is no process group for several nodes; or ranks disagree about the nodes, the shards or the
            windows, which is raised on all ranks. NoWindowError: no shard of any node has a window.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data, where = {"shop": ["A", "A", "B", "B"], "sold": [5.0, 6.0, 7.0, 8.0]}, tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=1, horizon=1)
        >>> windows = ts.cluster.exchange_counts(windows)  # every rank calls it
        >>> len(windows), [count.windows for count in windows.counts]
        (2, [1, 1])
    """
    shards = _of_shards(windows).shards
    mine = RankCounts(shards.node, shards.nodes, shared_fingerprint(windows), counts_of_node(windows))
    ranks = gather_from_ranks(mine, shards.nodes, group)
    counts = count_of_each_shard(ranks, len(shards.entity_offsets) - 1)
    if all(rank.windows is None for rank in ranks):
        raise NoWindowError(
            f"None of the {len(counts):,} shards has a window: all series are too short, or require= or where= leaves "
            "no window. Shorten the window, or see ts.Windows of one shard."
        )
    return replace(windows, counts=counts)


def fit_scaler(
    windows: ShardedWindows,
    columns: Sequence[str],
    *,
    kind: Kind = "standard",
    by: Literal["entity"] | None = None,
    unknown: Unknown = "error",
    together: bool = False,
    group: Any = None,
) -> Scaler:
    """`ts.Scaler.fit` for the windows of shards, over the rows of all nodes: bit by bit the same on every rank.

    This is a collective: every rank calls it. Each sends a few numbers per shard and column, and with `by="entity"` per
    entity; they are merged in the order of shards, whichever node holds them.

    Args:
        windows: the windows of the shards of this node, preferably of the training part alone. The scaler scales their
            spans of these columns.
        columns: names of numeric columns or packs.
        kind: `"standard"`, the default: mean and standard deviation; `"minmax"`: minimum and range; `"maxabs"`: 0 and
            the largest magnitude. Quartiles (`"robust"`) of several shards cannot be merged.
        by: `None`: all rows share a centre and scale. `"entity"`: each entity has its own; batches then need `entity`,
            which `ts.Loader(..., with_ids=True)` gives them.
        unknown: with `by="entity"`, `"pooled"` gives entities that the windows lack the statistics of all; by default
            they are an error.
        together: all columns of a pack have one centre and one scale; by default each has its own.
        group: the process group of the data ranks of all nodes; `None` is the default group.

    Returns:
        A `ts.Scaler` for batches of these windows, whose constants are the same bits on every rank.

    Raises:
        ValueError: there is no process group for several nodes, no window, or `kind="robust"`. ColumnError: a column
        does not exist, or has no span. SchemaError: it is not numeric. DataError: it has no value, or an infinite one.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data, where = {"shop": ["A", "A", "B", "B"], "sold": [5.0, 7.0, 5.0, 7.0]}, tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2)
        >>> ts.cluster.fit_scaler(windows, ["sold"])  # every rank calls it
        Scaler: standard, of the 4 rows seen
          sold  center 6  scale 1  for sold
    """
    check_kind(kind, one_of(by, (None, "entity"), "by"), unknown)
    flag(together, "together")
    mine = of_node(_of_shards(windows).parts, names_in(columns, "columns"), kind, by, together=together)
    nodes = gather_from_ranks(mine, windows.shards.nodes, group)
    statistics = of_all(windows.shards.entity_offsets, nodes, kind, by, pooled=unknown == "pooled")
    return scaler_of(windows, statistics, kind, by, unknown)


def _of_shards(windows: ShardedWindows) -> ShardedWindows:
    if not isinstance(windows, ShardedWindows):
        raise TypeError(f"windows must be those of shards, ts.cluster.windows(...), got {type_text(windows)}.")
    return windows


def gather_from_ranks(mine: Any, nodes: int, group: Any) -> list[Any]:
    """The objects of all ranks, by rank. It is a collective, unless there is one node and no process group."""
    if group is not None and not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        raise TypeError(f"group must be a process group of torch.distributed or None, got {shown(group)}.")
    if dist.is_available() and dist.is_initialized():
        objects: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(objects, mine, group=group)
        return objects
    if nodes > 1:
        raise ValueError(
            f"The {nodes} nodes exchange numbers through a process group, and there is none. Call "
            "torch.distributed.init_process_group() first, on every rank."
        )
    return [mine]


def count_of_each_shard(ranks: Sequence[RankCounts], shards: int) -> list[ShardCount]:
    """The count of each shard; raises `ValueError` if ranks disagree."""
    totals, windows = {rank.nodes for rank in ranks}, {repr(rank.windows) for rank in ranks if rank.windows}
    if len(totals) > 1:
        got = " and ".join(map(str, sorted(totals)))
        raise ValueError(f"All ranks must open shards for the same number of nodes, got {got}. See ts.cluster.open.")
    if len(windows) > 1:
        raise ValueError(
            "All ranks must have windows of the same arguments, columns and tables, got "
            f"{' and '.join(sorted(windows)[:2])}. Use the same ones on every rank."
        )
    counts: dict[int, ShardCount] = {}
    for number, rank in enumerate(ranks):
        for shard, count in rank.counts.items():
            if counts.setdefault(shard, count) != count:
                raise ValueError(
                    f"All ranks that hold a shard must have the same windows of it; for shard {shard}, rank {number} "
                    f"has {count}, and an earlier rank has {counts[shard]}. Use the same arguments on every rank."
                )
    if missing := [shard for shard in range(shards) if shard not in counts]:
        raise ValueError(
            f"Each shard must be held by a node; {len(missing):,} are held by none, such as shard {missing[0]}: the "
            f"ranks are on nodes {[rank.node for rank in ranks]}. See node= and nodes= of ts.cluster.open, and group=."
        )
    return [counts[shard] for shard in range(shards)]
