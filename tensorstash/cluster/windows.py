"""The windows of shards: those of each shard that this node holds, with what was decided for all shards."""

import warnings
from array import array
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Concatenate, ParamSpec

from tensorstash.cluster.shards import Shards, assign
from tensorstash.errors import NoWindowError
from tensorstash.sampling.sharded import Division, ShardedWindows
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

P = ParamSpec("P")


def _of_each_shard(make: Callable[Concatenate[Stash, P], Windows]) -> Callable[Concatenate[Shards, P], ShardedWindows]:
    """The function for shards that has the arguments of `make`, which is for a stash."""

    def windows(shards: Shards, /, *arguments: P.args, **named: P.kwargs) -> ShardedWindows:
        """The windows of shards, to be sampled by a `ts.Loader` on every rank of every node.

        The arguments are those of `ts.Windows`, and mean the same for each shard; `where` is a column. The frequency is
        by default the most common one of all shards, not of each. The windows have `split` and `split_fraction`. On
        several nodes pass each part to `ts.cluster.exchange_counts` before you make its loader.

        Raises:
            NoWindowError: this is the only node, and no shard has a window. For other errors see `ts.Windows`.

        Warns:
            UserWarning: what `ts.Windows` warns of, for the first shard of this node with such a warning.
        """
        if not isinstance(shards, Shards):
            raise TypeError(f"These windows are made of shards, ts.cluster.open(...); got a {type(shards).__name__}.")
        if named.get("at") is not None:
            raise ValueError("at= names points of one stash, and each node has some of the shards. Load a stash.")
        if named.get("frequency") is None and named.get("gaps") != "ignore":
            named["frequency"] = shards.manifest.frequency
        parts: dict[int, Windows] = {}
        told: dict[int, str] = {}
        short = None
        for shard, stash in shards.stashes.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    parts[shard] = make(stash, *arguments, **named)
                except NoWindowError as error:
                    short = error if stash.rows or short is None else short  # an empty shard says least
            if caught:
                told[shard] = " ".join(str(warning.message) for warning in caught)
        if short is not None and not parts and shards.nodes == 1:
            raise short
        if told:
            shard, text = next(iter(told.items()))
            more = f" {len(told) - 1} more shards of this node have such a warning." if len(told) > 1 else ""
            warnings.warn(f"Shard {shard}: {text}{more}", stacklevel=2)
        holds = partial(assign, array("q", (record.rows for record in shards.manifest.shards)))
        names = partial(getattr, shards, "entities")  # decoded only where they are needed
        division = Division(shards.node, shards.nodes, shards.manifest.rows, shards.entity_offsets, holds, names)
        return ShardedWindows(parts, division)

    shown = signature(make)
    _, *others = shown.parameters.values()
    first = Parameter("shards", Parameter.POSITIONAL_ONLY, annotation=Shards)
    windows.__signature__ = shown.replace(  # type: ignore[attr-defined]
        parameters=[first, *others], return_annotation=ShardedWindows
    )
    return windows


windows = _of_each_shard(Windows)  # so that the arguments are stated once, by `ts.Windows`
