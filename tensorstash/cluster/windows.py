"""The windows of shards: those of each shard that this node holds, with what was decided for all shards."""

import warnings
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensorstash.cluster.shards import Shards, assign
from tensorstash.errors import NoWindowError
from tensorstash.sampling.sharded import Division, ShardedWindows
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows


def windows(
    shards: Shards,
    history: int | None = None,
    horizon: int = 0,
    *,
    columns: Sequence[str] | None = None,
    spans: Mapping[str, Sequence[Any]] | None = None,
    min_history: int | None = None,
    min_horizon: int | None = None,
    stride: int = 1,
    gaps: str = "split",
    frequency: int | str | None = None,
    tolerance: int | str | None = None,
    require: Sequence[str] | None = None,
    where: str | None = None,
) -> ShardedWindows:
    """The windows of shards, to be sampled by a `ts.Loader` on every rank of every node.

    The arguments are those of `ts.Windows`, and mean the same for each shard; `where` is a column. The frequency is by
    default the most common one of all shards, not of each.

    Returns:
        What has `split` and `split_fraction` like `ts.Windows`. On several nodes pass each part to
        `ts.cluster.exchange_counts` before you make its loader.

    Raises:
        NoWindowError: this is the only node, and no shard has a window. For other errors see `ts.Windows`.

    Warns:
        UserWarning: what `ts.Windows` warns of, for the first shard of this node with such a warning.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["A", "B"] * 4, "hour": [0, 0, 1, 1, 2, 2, 3, 3], "temp": [0.5] * 8}
        >>> where = tempfile.mkdtemp()
        >>> made = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=4, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2)
        >>> train, valid = windows.split(3)
        >>> len(train), len(valid)
        (4, 0)
    """
    if not isinstance(shards, Shards):
        raise TypeError(f"These windows are made of shards, ts.cluster.open(...); got a {type(shards).__name__}.")
    if frequency is None and gaps != "ignore":
        frequency = shards.manifest.frequency
    make = partial(
        Windows,
        history=history,
        horizon=horizon,
        columns=columns,
        spans=spans,
        min_history=min_history,
        min_horizon=min_horizon,
        stride=stride,
        gaps=gaps,
        frequency=frequency,
        tolerance=tolerance,
        require=require,
        where=where,
    )
    parts, told, short = _made(make, shards.stashes)
    if short is not None and not parts and shards.nodes == 1:
        raise short
    if told:
        shard, text = next(iter(told.items()))
        more = f" {len(told) - 1} more shards of this node have such a warning." if len(told) > 1 else ""
        warnings.warn(f"Shard {shard}: {text}{more}", stacklevel=2)
    return ShardedWindows(parts, _division(shards))


def _made(
    make: Callable[[Stash], Windows], stashes: Mapping[int, Stash]
) -> tuple[dict[int, Windows], dict[int, str], NoWindowError | None]:
    """The windows of each shard that has any, the first warning of each shard, and the error of one without windows."""
    parts: dict[int, Windows] = {}
    told: dict[int, str] = {}
    short = None
    for shard, stash in stashes.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                parts[shard] = make(stash)
            except NoWindowError as error:
                short = error
        if caught:
            told[shard] = str(caught[0].message)
    return parts, told, short


def _division(shards: Shards) -> Division:
    holds = partial(assign, array("q", (shard.rows for shard in shards.manifest.shards)))
    names = partial(getattr, shards, "entities")  # decoded only where they are needed
    return Division(shards.node, shards.nodes, shards.manifest.rows, shards.entity_offsets, holds, names)
