"""The ordering that a `Sampler` follows: an argument `shuffle` as an order per epoch, a name and a fingerprint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import SchemaError, unknown
from tensorstash.native.permutation import BLOCK, Order
from tensorstash.sampling.by_time import ByTime, Sections, order_of_times, sections
from tensorstash.sampling.by_time import checksum as checksum_of_times
from tensorstash.sampling.components import Components
from tensorstash.sampling.components import draws as mix_draws
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Blocks, Exact, Lanes, name_of, order
from tensorstash.sampling.own_ids import OwnIds
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.sampling.sharded_steps import Sharding
from tensorstash.sampling.weighted import (
    Shares,
    Weighted,
    as_array,
    checksum,
    draws,
    entity_draws,
    entity_shares,
    window_shares,
)
from tensorstash.stash.stash import Stash
from tensorstash.windows.layout import label_rows, label_times
from tensorstash.windows.windows import Windows

_MANY = 100  # components, from which larger calls pay for their fixed cost
_BLOCK = 1 << 16  # windows at a time: the temporary arrays stay in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """The order of every epoch, made once from an argument `shuffle` and from what is sampled."""

    shuffle: Exact | OwnIds | Weighted | ByTime
    name: str  # in a state
    n: int  # positions of an epoch
    at: Callable[[int, int], Order]  # seed and epoch to the order of positions; with `sections`, of times
    fingerprint: Mapping[str, Any]  # a state must have the same values to be loaded
    sections: Sections | None = None  # given if each step has windows of one time only
    block: int = BLOCK  # positions that are best evaluated together
    sharding: Sharding | None = None  # given if the windows are those of shards


Shuffle = Exact | OwnIds | Weighted | ByTime | Ordering


def of_count(shuffle: Shuffle, n: int) -> Ordering:
    """The ordering of `n` windows, if only their number is known."""
    if isinstance(shuffle, Ordering):
        return shuffle
    by_index = isinstance(shuffle, Weighted) and shuffle.per == "window" and not isinstance(shuffle.weights, str)
    if isinstance(shuffle, (ByTime, Weighted)) and not by_index:
        raise ValueError(
            f"A sampler alone knows the number of windows, but not their times and entities, which {shuffle!r} needs. "
            "Take the sampler of a loader: ts.Loader(windows, ..., shuffle=...).sampler."
        )
    about = {"windows": n}
    if isinstance(shuffle, Weighted):
        return _by_window(shuffle, n, about)
    return _plain(shuffle, n, about)


def of_windows(shuffle: Shuffle, windows: Windows | Mix | ShardedWindows) -> Ordering:
    """The ordering of windows, of a mix, or of the windows of shards."""
    about = windows.fingerprint()
    if isinstance(windows, ShardedWindows):
        return _sharded(shuffle, windows, about)
    if isinstance(windows, Mix):
        return _mixed(shuffle, windows, about)
    if isinstance(shuffle, Weighted):
        return _weighted(shuffle, windows, about)
    if isinstance(shuffle, ByTime):
        return _by_time(shuffle, windows, about)
    return _plain(shuffle, len(windows), about)


def _plain(shuffle: Any, n: int, about: Mapping[str, Any]) -> Ordering:
    if isinstance(shuffle, OwnIds):
        return Ordering(shuffle, "own ids", len(shuffle), partial(_own, shuffle), about)
    if isinstance(shuffle, np.bool_):
        shuffle = bool(shuffle)
    if not isinstance(shuffle, (bool, Blocks, Lanes)):
        raise TypeError(
            "shuffle= is True, False, ts.Blocks(size), ts.Lanes(count), ts.Weighted(weights) or ts.ByTime(); got "
            f"{shuffle!r}."
        )
    return Ordering(shuffle, name_of(shuffle), n, partial(order, shuffle, n), about)


def _own(ids: OwnIds, _: int, epoch: int) -> Order:
    return ids.order(epoch)


def _weighted(weighted: Weighted, windows: Windows, about: Mapping[str, Any]) -> Ordering:
    count = len(windows)
    if weighted.per == "window":
        if isinstance(weighted.weights, str):
            weighted = replace(weighted, weights=_at_anchors(windows, weighted.weights))
        return _by_window(weighted, count, about)
    if isinstance(weighted.weights, str):
        weighted = replace(weighted, weights=_static(windows.stash, weighted.weights))
    first = np.append(windows.per_entity()["first"].numpy(), count)
    shares = entity_shares(weighted, windows.stash.entities, first)
    return _drawn(weighted, shares, partial(entity_draws, shares, first), count, about)


def _by_window(weighted: Weighted, count: int, about: Mapping[str, Any]) -> Ordering:
    shares = window_shares(weighted, count)
    return _drawn(weighted, shares, partial(draws, shares), count, about)


def _drawn(
    weighted: Weighted, shares: Shares, at: Callable[[int, int], Order], count: int, about: Mapping[str, Any]
) -> Ordering:
    n = count if weighted.count is None else weighted.count
    kept = replace(weighted, weights=())  # the shares replace the weights, whose memory is released
    return Ordering(kept, f"weighted by {weighted.per}", n, at, {**about, "draws": n, "weights": checksum(shares)})


def _mixed(shuffle: Shuffle, mix: Mix, about: Mapping[str, Any]) -> Ordering:
    if not isinstance(shuffle, (bool, np.bool_)):
        raise ValueError(f"A mix is permuted, shuffle=True, or interleaved, shuffle=False; got {shuffle!r}.")
    name = "mix, shuffled" if shuffle else "mix, interleaved"
    block = _BLOCK if len(mix.windows) > _MANY else BLOCK
    return Ordering(
        bool(shuffle), name, mix.count, partial(_of_mix, mix._of, mix.count, bool(shuffle)), about, block=block
    )


def _sharded(shuffle: Shuffle, windows: ShardedWindows, about: Mapping[str, Any]) -> Ordering:
    if not isinstance(shuffle, (bool, np.bool_)):
        raise ValueError(
            "Each node orders the windows of its own shards: they are permuted, shuffle=True, or interleaved, "
            f"shuffle=False; got {shuffle!r}."
        )
    mix, division, shuffle = windows.mix_of_node(), windows.division, bool(shuffle)
    sharding = Sharding(windows.table, division.node, division.nodes, tuple(windows.parts), mix._of, shuffle)
    name = "shards, shuffled" if shuffle else "shards, interleaved"
    return Ordering(shuffle, name, len(windows), _of_legs, about, sharding=sharding)


def _of_legs(_: int, epoch: int) -> Order:
    raise AssertionError(f"the order of epoch {epoch} depends on its legs: Sharding.cut follows it")


def _of_mix(of: Components, count: int, shuffle: bool, seed: int, epoch: int) -> Order:
    at, begin = mix_draws(of, shuffle, seed), epoch * count
    return lambda positions: of.flat(*at(positions + begin))


def _by_time(by_time: ByTime, windows: Windows, about: Mapping[str, Any]) -> Ordering:
    if windows.stash.time is None:
        raise ValueError("ts.ByTime needs the times of windows; this stash has none. Load it with time=.")
    found = sections(partial(_times, windows), len(windows))
    name = "by time, shuffled" if by_time.shuffle else "by time"
    about = {**about, "times": checksum_of_times(found)}
    return Ordering(by_time, name, len(windows), partial(order_of_times, by_time, found), about, found)


def _times(windows: Windows, ids: Int64s) -> Int64s:
    times = label_times(windows._layout, windows._anchor_slots(ids))
    assert times is not None
    return times


def _at_anchors(windows: Windows, name: str) -> NDArray[Any]:
    """The value of a column in the anchor row of each window, the same row that `where=` uses."""
    column = _number(windows.stash, name, windows.stash)
    values = np.empty(len(windows), column.dtype)
    for low in range(0, len(windows), _BLOCK):
        ids = np.arange(low, min(low + _BLOCK, len(windows)), dtype=np.int64)
        values[low : low + _BLOCK] = column[label_rows(windows._layout, windows._anchor_slots(ids))]
    return values


def _static(stash: Stash, name: str) -> NDArray[Any]:
    return _number(stash, name, stash.static)


def _number(stash: Stash, name: str, columns: Mapping[str, torch.Tensor]) -> NDArray[Any]:
    if name not in columns:
        raise unknown(name, columns, "the stash", "static column" if columns is not stash else "column")
    kind = "a pack" if columns[name].ndim > 1 else stash.about(name).kind
    if kind != "number":
        raise SchemaError(f"Weights are a column of numbers; {name!r} is {kind}.")
    return as_array(columns[name])
