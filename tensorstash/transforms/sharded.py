"""Statistics over the rows of all shards: each node's, as a few numbers, and what they are together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.moments import Floats, Rows
from tensorstash.transforms.statistics import KINDS, Doubt, Fitted, checked, fill_few, merged, rows_seen, spans_of


@dataclass(frozen=True, slots=True)
class Told:
    """What a node knows of the rows of its shards that are seen."""

    spans: dict[str, str]  # each span that will be scaled, and its column
    packs: dict[str, tuple[int, ...]]  # the other dimensions of each column
    rows: dict[int, int]  # of each shard
    every: dict[int, dict[str, Fitted]]  # of each shard and column: of all entities of the shard together
    each: dict[int, dict[str, Fitted]]  # by its entities; empty unless it was asked for


@dataclass(frozen=True, slots=True)
class Together:
    """Centres and scales of all shards, the same on every node."""

    rows: int
    spans: dict[str, str]
    center: dict[str, torch.Tensor]
    scale: dict[str, torch.Tensor]
    doubts: list[Doubt]


def told_by(windows: ShardedWindows, columns: list[str], kind: str, by: str | None) -> Told:
    """The statistics of each shard of this node.

    Raises:
        ValueError: quartiles were asked for, which cannot be merged.
    """
    if kind == "robust":
        raise ValueError(
            'Quartiles of several shards together are not computed. Use kind="standard", "minmax" or "maxabs".'
        )
    told = Told({}, {}, {}, {}, {})
    for shard, own in windows.parts.items():
        stash = own.stash
        told.spans.update(spans_of(own, stash, columns))
        names = dict.fromkeys(told.spans.values())
        told.packs.update({name: tuple(stash[name].shape[1:]) for name in names})
        if not len(own):
            continue
        rows = rows_seen(own)
        every = Rows(rows.low, rows.high, np.array([0, stash.rows]))
        told.rows[shard] = len(rows)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values are refused when all are there
            told.every[shard] = {name: KINDS[kind](stash[name], every) for name in names}
            if by is not None:
                told.each[shard] = {name: KINDS[kind](stash[name], rows) for name in names}
    return told


def together(parts: Sequence[Told], offsets: Int64s, kind: str, by: str | None) -> Together:
    """What the nodes have told, merged in the order of shards, so that every node finds the same bits.

    Args:
        parts: of all ranks; those of one node tell the same.
        offsets: `(shards + 1,)` where the entities of each shard begin among those of all.
        kind: as of the scaler.
        by: likewise.

    Raises:
        ValueError: there is no window. DataError: a column has no value, or an infinite one.
    """
    spans, packs, rows = ({k: v for part in parts for k, v in getattr(part, which).items()} for which in _SIMPLE)
    if not rows:
        raise ValueError("A scaler is fitted on at least one window; these windows are empty. See the cuts of split().")
    every, each = ({k: v for part in parts for k, v in getattr(part, which).items()} for which in ("every", "each"))
    center, scale = {}, {}
    doubts: list[Doubt] = []
    for name, pack in packs.items():
        with np.errstate(invalid="ignore", over="ignore"):
            fitted = merged([every[shard][name] for shard in sorted(every)], kind)
            if by is not None:
                own = _by_entity({shard: columns[name] for shard, columns in each.items()}, offsets, fitted)
                fitted, few = fill_few(own, fitted, name)
                doubts += few
        count, middle, width = fitted
        doubts += checked(count, middle, width, name)
        center[name], scale[name] = (torch.from_numpy(x.reshape(-1, *pack).copy()) for x in (middle, width))
    return Together(sum(rows.values()), spans, center, scale, doubts)


_SIMPLE = ("spans", "packs", "rows")


def _by_entity(each: Mapping[int, Fitted], offsets: Int64s, like: Fitted) -> Fitted:
    """The entities of all shards; those of shards without windows have no values."""
    shape = (int(offsets[-1]), like[1].shape[1])
    count: Int64s = np.zeros(shape, np.int64)
    center: Floats = np.zeros(shape)
    scale: Floats = np.zeros(shape)
    for shard, fitted in each.items():
        of = slice(int(offsets[shard]), int(offsets[shard + 1]))
        count[of], center[of], scale[of] = fitted
    return count, center, scale
