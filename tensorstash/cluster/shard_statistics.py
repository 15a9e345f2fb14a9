"""Statistics over the rows of all shards: a few numbers from each node, which are merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    spans_of,
)
from tensorstash.transforms.rows_seen import one_group, rows_seen
from tensorstash.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class ShardStatistics:
    """Statistics of the rows of one shard, by column."""

    spans: dict[str, str]  # maps each span to scale to its column
    packs: dict[str, tuple[int, ...]]  # the dimensions of a row
    rows: int  # that were seen
    every: dict[str, Fitted]  # of all entities together
    each: dict[str, Fitted]  # of each entity; only with `by="entity"`


def of_node(
    parts: Mapping[int, Windows], columns: list[str], kind: str, by: str | None, *, together: bool
) -> dict[int, ShardStatistics]:
    """The statistics of each shard of this node that has windows.

    Raises `ValueError` for quartiles, which cannot be merged.

    With `together` all numbers of a pack have the same statistics.
    """
    if kind == "robust":
        raise ValueError(
            'kind="robust" needs one stash: quartiles of shards cannot be merged. Use "standard", "minmax" or "maxabs".'
        )
    node = {}
    for shard, part in parts.items():
        stash, spans = part.stash, spans_of(part, columns)
        names = dict.fromkeys([*spans.values(), *columns])
        if other := [name for name in names if name in stash.static or stash_with(part, name) is not stash]:
            raise ValueError(
                f"Shards have statistics of the columns of their rows; {other[0]!r} is a static column, or one of a "
                "table, whose rows several shards may see. Scale it before the load, or fit a scaler on the table."
            )
        packs = {name: tuple(stash[name].shape[1:]) for name in names}
        if not len(part):
            continue
        rows = rows_seen(part, stash)
        values = {name: (values_of(stash, name), rows) for name in names}
        if together:
            values = {name: all_of_pack(*of_column, name) for name, of_column in values.items()}
        every = {name: fit([(column, one_group(own))], kind) for name, (column, own) in values.items()}
        each = {name: fit([of_column], kind) for name, of_column in values.items() if by is not None}
        node[shard] = ShardStatistics(spans, packs, len(rows), every, each)
    return node


def of_all(
    entity_offsets: Int64s,
    nodes: Sequence[Mapping[int, ShardStatistics]],
    kind: str,
    by: str | None,
    *,
    pooled: bool,
) -> Statistics:
    """The statistics of all ranks, merged in the order of shards, so that every rank computes the same bits.

    The ranks of one node give the same statistics. With `pooled` a last group has those of all rows.
    """
    shards = dict(sorted({shard: own for node in nodes for shard, own in node.items()}.items()))
    if not shards:
        raise ValueError(NO_WINDOWS)
    first, *_ = shards.values()
    statistics = Statistics(sum(own.rows for own in shards.values()), first.spans)
    for name, pack in first.packs.items():
        few = NO_GROUPS
        with np.errstate(invalid="ignore", over="ignore"):
            fitted = merged([own.every[name] for own in shards.values()], kind)
        last = fitted if pooled else None
        if by is not None:
            # entities of shards without windows have no values
            count, center, scale = (np.zeros((entity_offsets[-1], array.shape[1]), array.dtype) for array in fitted)
            for shard, own in shards.items():
                entities = slice(entity_offsets[shard], entity_offsets[shard + 1])
                count[entities], center[entities], scale[entities] = own.each[name]
            fitted, few = fill_few((count, center, scale), fitted)
        statistics.add(name, pack, fitted, few, last)
    return statistics
