"""Statistics over the rows of all shards: a few numbers from each node, which are merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.stash.missing import values_of
from tensorstash.transforms.bound import stash_with
from tensorstash.transforms.fitting import (
    NO_GROUPS,
    NO_WINDOWS,
    Fitted,
    Statistics,
    all_of_pack,
    fill_few,
    fit,
    merged,
    one_group,
    rows_seen,
    spans_of,
)
from tensorstash.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Per-shard statistics computed by one node."""

    spans: dict[str, str] = field(default_factory=dict)  # maps each span to scale to its column
    packs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the dimensions of a row of each column
    rows: dict[int, int] = field(default_factory=dict)  # the rows seen in each shard
    every: dict[int, dict[str, Fitted]] = field(default_factory=dict)  # by shard and column, of all entities together
    each: dict[int, dict[str, Fitted]] = field(
        default_factory=dict
    )  # by shard and column, of each entity; only with `by="entity"`


def of_node(
    parts: Mapping[int, Windows], columns: list[str], kind: str, by: str | None, *, together: bool = False
) -> NodeStatistics:
    """The statistics of each shard of this node; raises `ValueError` for quartiles, which cannot be merged.

    With `together` all numbers of a pack have the same statistics.
    """
    if kind == "robust":
        raise ValueError(
            'kind="robust" needs one stash: quartiles of shards cannot be merged. Use "standard", "minmax" or "maxabs".'
        )
    node = NodeStatistics()
    for shard, part in parts.items():
        stash, names = part.stash, dict.fromkeys([*spans_of(part, columns).values(), *columns])
        node.spans.update(spans_of(part, columns))
        if static := [name for name in names if name in stash.static]:
            raise ValueError(
                f"Shards have no statistics of static columns; {static[0]!r} is one. Scale it before the load."
            )
        if apart := [name for name in names if stash_with(part, name) is not stash]:
            raise ValueError(
                f"A row of a table may be seen by windows of several shards; {apart[0]!r} is a column of a table. Fit "
                "a scaler on the table."
            )
        node.packs.update({name: tuple(stash[name].shape[1:]) for name in names})
        if not len(part):
            continue
        rows = rows_seen(part, stash)
        values = {name: (values_of(stash, name), rows) for name in names}
        if together:
            values = {name: all_of_pack(*of_column, name) for name, of_column in values.items()}
        node.rows[shard] = len(rows)
        node.every[shard] = {name: fit([(column, one_group(own))], kind) for name, (column, own) in values.items()}
        node.each[shard] = {name: fit([of_column], kind) for name, of_column in values.items() if by is not None}
    return node


def of_all(
    entity_offsets: Int64s, nodes: Sequence[NodeStatistics], kind: str, by: str | None, *, pooled: bool = False
) -> Statistics:
    """The statistics of all ranks, merged in the order of shards, so that every rank computes the same bits.

    The ranks of one node give the same statistics. With `pooled` a last group has those of all rows.
    """
    result = NodeStatistics()
    for node in nodes:
        for name in ("spans", "packs", "rows", "every", "each"):
            getattr(result, name).update(getattr(node, name))
    if not result.rows:
        raise ValueError(NO_WINDOWS)
    statistics = Statistics(sum(result.rows.values()), result.spans)
    for name, pack in result.packs.items():
        few = NO_GROUPS
        with np.errstate(invalid="ignore", over="ignore"):
            fitted = merged([result.every[shard][name] for shard in sorted(result.every)], kind)
        last = fitted if pooled else None
        if by is not None:
            offsets = entity_offsets
            # entities of shards without windows have no values
            count, center, scale = (np.zeros((offsets[-1], array.shape[1]), array.dtype) for array in fitted)
            for shard, columns in result.each.items():
                entities = slice(offsets[shard], offsets[shard + 1])
                count[entities], center[entities], scale[entities] = columns[name]
            fitted, few = fill_few((count, center, scale), fitted)
        statistics.add(name, pack, fitted, few, last)
    return statistics
