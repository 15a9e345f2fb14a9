"""Statistics over the rows of all shards: each node's as a few numbers, and their merge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.missing import values_of
from tensorstash.stash.moments import Floats, Rows
from tensorstash.transforms.statistics import (
    KINDS,
    NO_WINDOWS,
    Doubt,
    Fitted,
    Statistics,
    fill_few,
    merged,
    rows_seen,
    spans_of,
)


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Per-shard statistics computed by one node."""

    spans: dict[str, str] = field(default_factory=dict)  # each span that will be scaled, and its column
    packs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the other dimensions of each column
    rows: dict[int, int] = field(default_factory=dict)  # the rows seen in each shard
    every: dict[int, dict[str, Fitted]] = field(default_factory=dict)  # by shard and column: all entities together
    each: dict[int, dict[str, Fitted]] = field(default_factory=dict)  # its entities apart; only for `by="entity"`


def of_node(windows: ShardedWindows, columns: list[str], kind: str, by: str | None) -> NodeStatistics:
    """The statistics of each shard of this node; `ValueError` for quartiles, which cannot be merged."""
    if kind == "robust":
        raise ValueError(
            'kind="robust" needs one stash: quartiles of shards cannot be merged. Use "standard", "minmax" or "maxabs".'
        )
    node = NodeStatistics()
    for shard, part in windows.parts.items():
        stash = part.stash
        node.spans.update(spans_of(part, columns))
        names = dict.fromkeys(node.spans.values())
        node.packs.update({name: tuple(stash[name].shape[1:]) for name in names})
        if not len(part):
            continue
        rows = rows_seen(part)
        every = Rows(rows.low, rows.high, np.array([0, stash.rows]))
        node.rows[shard] = len(rows)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values are refused after the merge
            node.every[shard] = {name: KINDS[kind](values_of(stash, name), every) for name in names}
            if by is not None:
                node.each[shard] = {name: KINDS[kind](values_of(stash, name), rows) for name in names}
    return node


def of_all(nodes: Sequence[NodeStatistics], offsets: Int64s, kind: str, by: str | None) -> Statistics:
    """The statistics of all ranks, merged in the order of shards, so that every rank computes the same bits.

    The ranks of one node have the same statistics. `offsets`, `(shards + 1,)`, say where the entities of each shard
    begin among those of all.
    """
    result = NodeStatistics()
    for node in nodes:
        for name in ("spans", "packs", "rows", "every", "each"):
            getattr(result, name).update(getattr(node, name))
    if not result.rows:
        raise ValueError(NO_WINDOWS)
    statistics = Statistics(sum(result.rows.values()), result.spans, {}, {}, [])
    for name, pack in result.packs.items():
        doubts: list[Doubt] = []
        with np.errstate(invalid="ignore", over="ignore"):
            fitted = merged([result.every[shard][name] for shard in sorted(result.every)], kind)
            if by is not None:
                each = {shard: columns[name] for shard, columns in result.each.items()}
                fitted, doubts = fill_few(_by_entity(each, offsets, fitted), fitted, name)
        statistics.add(name, pack, fitted, doubts)
    return statistics


def _by_entity(each: Mapping[int, Fitted], offsets: Int64s, like: Fitted) -> Fitted:
    """The entities of all shards; entities of shards without windows have no values."""
    shape = (int(offsets[-1]), like[1].shape[1])
    count: Int64s = np.zeros(shape, np.int64)
    center: Floats = np.zeros(shape)
    scale: Floats = np.zeros(shape)
    for shard, fitted in each.items():
        entities = slice(int(offsets[shard]), int(offsets[shard + 1]))
        count[entities], center[entities], scale[entities] = fitted
    return count, center, scale
