"""The ordering of a `Sampler`: its arguments as an order per epoch, a name and a fingerprint."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import SchemaError, unknown
from tensorstash.native.permutation import BLOCK
from tensorstash.native.permutation import Order as At
from tensorstash.sampling.by_time import ByTime, Sections, sections
from tensorstash.sampling.components import Components, mix_draws
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Blocks, Exact, Lanes, OwnIds, checksum, chunks, name_of
from tensorstash.sampling.order import order as order_at
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.sampling.sharded_steps import Sharding
from tensorstash.sampling.weighted import (
    DrawTable,
    Weighted,
    as_array,
    checked_weights,
    draw_table,
    entity_draws,
    entity_table,
    window_draws,
)
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

_NAMES = ("interleaved", "shuffled")  # of orders over several stashes, in a state


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """The order of every epoch, made once from the arguments `shuffle` and `order` and from the windows."""

    shuffle: Exact | OwnIds | Weighted | ByTime
    name: str  # in a state
    n: int  # positions of an epoch
    at: Callable[[int, int], At]  # seed and epoch to the order of positions; with `sections`, of times
    fingerprint: Mapping[str, Any] = field(default_factory=dict)  # must be equal in a state that is loaded
    sections: Sections | None = None  # if each step has windows of one time only
    block: int = BLOCK  # positions that are best evaluated together
    sharding: Sharding | None = None  # if the windows are of shards


Chosen = Exact | OwnIds | Weighted | ByTime
Order = Blocks | Lanes | Weighted | ByTime | Iterable[int] | Ordering | None  # the argument `order`


def _chosen(shuffle: object, order: Any, windows: int) -> Chosen:
    """The order that the two arguments name."""
    if not isinstance(shuffle, (bool, np.bool_)):
        raise TypeError(f"shuffle must be True or False, got {shuffle!r}. Give any other order as order=.")
    if order is None:
        return bool(shuffle)
    if shuffle:
        raise ValueError("shuffle=True and order= each set the order, so only one may be given. Leave one out.")
    return order if isinstance(order, (Blocks, Lanes, Weighted, ByTime)) else OwnIds(order, windows)


def of_count(shuffle: object, order: Order, n: int) -> Ordering:
    """The ordering of `n` windows of which only the number is known."""
    if isinstance(order, Ordering):
        return order
    chosen = _chosen(shuffle, order, n)
    by_index = isinstance(chosen, Weighted) and chosen.per == "window" and not isinstance(chosen.weights, str)
    if isinstance(chosen, (ByTime, Weighted)) and not by_index:
        raise ValueError(
            f"A sampler alone knows the number of windows, but not their times and entities, which {chosen!r} needs. "
            "Take the sampler of a loader: ts.Loader(windows, ..., order=...).sampler."
        )
    ordering = _by_window(chosen, n) if isinstance(chosen, Weighted) else _exact(chosen, n)
    return replace(ordering, fingerprint={"windows": n, **ordering.fingerprint})


def of_windows(shuffle: object, order: Order, windows: Windows | Mix | ShardedWindows) -> Ordering:
    """The ordering of windows, of a mix, or of the windows of shards."""
    if not isinstance(windows, Windows) and order is not None:
        what = "a mix" if isinstance(windows, Mix) else "shards"
        raise ValueError(f"order must be left out for {what}. Use shuffle=True (permuted) or False (interleaved).")
    chosen = _chosen(shuffle, order, len(windows))
    if isinstance(windows, ShardedWindows):
        ordering = _sharded(chosen is True, windows)
    elif isinstance(windows, Mix):
        ordering = _mixed(chosen is True, windows)
    elif isinstance(chosen, Weighted):
        ordering = _weighted(chosen, windows)
    elif isinstance(chosen, ByTime):
        ordering = _by_time(chosen, windows)
    else:
        ordering = _exact(chosen, len(windows))
    return replace(ordering, fingerprint=windows.fingerprint() | dict(ordering.fingerprint))


def _exact(shuffle: Exact | OwnIds, n: int) -> Ordering:
    if isinstance(shuffle, OwnIds):
        return Ordering(shuffle, "own ids", len(shuffle), shuffle.at)
    return Ordering(shuffle, name_of(shuffle), n, partial(order_at, shuffle, n))


def _weighted(weighted: Weighted, windows: Windows) -> Ordering:
    if weighted.per == "window":
        if isinstance(weighted.weights, str):
            weighted = replace(weighted, weights=_at_anchors(windows, weighted.weights))
        return _by_window(weighted, len(windows))
    if isinstance(weighted.weights, str):
        weighted = replace(weighted, weights=_number(windows.stash, weighted.weights, windows.stash.static))
    first = np.append(0, np.cumsum(windows.per_entity()["count"].numpy()))
    table = entity_table(weighted.weights, windows.stash.entities, first)
    return _drawn(weighted, table, partial(entity_draws, table, first, _by_entity(windows)), len(windows))


def _by_entity(windows: Windows) -> Int64s | None:
    """The ids of windows at given points by entity, of one entity ascending; other ids are in this order."""
    points = windows.placement.points
    return None if points is None else np.argsort(points.entity, kind="stable")


def _by_window(weighted: Weighted, n: int) -> Ordering:
    table = draw_table(checked_weights(weighted.weights, n, "window", range(n)))
    return _drawn(weighted, table, partial(window_draws, table), n)


def _drawn(weighted: Weighted, table: DrawTable, at: Callable[[int, int], At], windows: int) -> Ordering:
    n = windows if weighted.epoch_size is None else weighted.epoch_size
    kept = replace(weighted, weights=())  # the table replaces the weights, whose memory is released
    return Ordering(kept, f"weighted by {weighted.per}", n, at, {"draws": n, "weights": checksum(table.ends)})


def _mixed(permuted: bool, mix: Mix) -> Ordering:
    at = partial(_of_mix, mix.components, mix.epoch_size, permuted)
    return Ordering(permuted, f"mix, {_NAMES[permuted]}", mix.epoch_size, at, block=mix.components.block)


def _sharded(permuted: bool, windows: ShardedWindows) -> Ordering:
    mix, division = windows.mix_of_node(), windows.division
    sharding = Sharding(windows.table, division.node, division.nodes, tuple(windows.parts), mix.components, permuted)
    return Ordering(permuted, f"shards, {_NAMES[permuted]}", len(windows), _of_legs, sharding=sharding)


def _of_legs(_: int, epoch: int) -> At:
    raise AssertionError(f"the order of epoch {epoch} depends on its legs: see Sharding.steps_after")


def _of_mix(of: Components, count: int, shuffle: bool, seed: int, epoch: int) -> At:
    at, begin = mix_draws(of, shuffle, seed), epoch * count
    return lambda positions: of.flat(*at(positions + begin))


def _by_time(by_time: ByTime, windows: Windows) -> Ordering:
    if windows.stash.time is None:
        raise ValueError("ts.ByTime needs times, and this stash has none. Load it with time=.")
    table = sections(partial(_anchor_times, windows), len(windows), _by_entity(windows))
    name = "by time, shuffled" if by_time.shuffle else "by time"
    at = partial(order_at, by_time.shuffle, len(table.ends))
    return Ordering(by_time, name, len(windows), at, {"times": checksum(table.ends, table.ids)}, table)


def _anchor_times(windows: Windows, ids: Int64s) -> Int64s:
    placement = windows.placement
    return placement.window_times(ids, placement.anchor_slots(ids))


def _at_anchors(windows: Windows, name: str) -> NDArray[Any]:
    """The value of a column in the anchor row of each window, the same row that `where=` uses."""
    points = windows.placement.points
    if points is not None:
        if name not in points.labels:
            raise unknown(name, points.labels, "the frame of at=")
        return points.labels[name][points.row]
    column = _number(windows.stash, name, windows.stash)
    values, placement = np.empty(len(windows), column.dtype), windows.placement
    for low, high in chunks(len(windows)):
        ids = np.arange(low, high, dtype=np.int64)
        values[low:high] = column[placement.label_rows(placement.anchor_slots(ids))]
    return values


def _number(stash: Stash, name: str, columns: Mapping[str, torch.Tensor]) -> NDArray[Any]:
    if name not in columns:
        raise unknown(name, columns, "the stash", "static column" if columns is not stash else "column")
    kind = "a pack" if columns[name].ndim > 1 else stash.about(name).kind
    if kind != "number":
        raise SchemaError(f"Weights must be a column of numbers; {name!r} is {kind}.")
    return as_array(columns[name])
