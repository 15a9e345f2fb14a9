"""`ts.cluster.windows`: the windows of each shard that this node holds."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Concatenate, ParamSpec

from tensorstash.cluster.sharded_windows import ShardedWindows, made_of_shards
from tensorstash.cluster.shards import Shards
from tensorstash.common.text import type_text
from tensorstash.errors import NoWindowError
from tensorstash.stash.stash import Stash
from tensorstash.windows.during import During
from tensorstash.windows.windows import Windows

P = ParamSpec("P")


def _of_each_shard(make: Callable[Concatenate[Stash, P], Windows]) -> Callable[Concatenate[Shards, P], ShardedWindows]:
    """The function that makes the windows of each shard by `make`, with its arguments."""

    def windows(shards: Shards, /, *arguments: P.args, **named: P.kwargs) -> ShardedWindows:  # noqa: D417  those of `make`
        """The windows of shards, to be sampled by a `ts.Loader` on every rank of every node.

        The other arguments are those of `ts.Windows`, and mean the same for each shard. The windows have `split`,
        `split_fraction`, `split_last` and `of`. On several nodes pass each part to `ts.cluster.exchange_counts` before
        you make its loader.

        Args:
            shards: those of this node, as `ts.cluster.open` returns them.
            frequency: the step of time, such as "15m", or a calendar, all times that exist. By default that of the
                manifest, the most common step of all shards.
            where: a boolean column; windows whose anchor is at a row where it is false are left out. By default none
                are.
            at: `None`: points are of one stash, and are refused here, so `closed` and `unmatched` keep their defaults.
            tables: stashes by name, whole on every node, from which spans in time take rows. By default none.
            max_slots: `None`: the longest run is that of one stash, and spans without an end are refused here.

        Returns:
            The `ShardedWindows` of all shards, of which this process has those of its node.

        Raises:
            NoWindowError: this is the only node, and no shard has a window. ValueError: `at=` or `max_slots=`.
            ColumnError: no such column. SchemaError: a reserved span name, or a column without a value for empty slots.

        Warns:
            UserWarning: what `ts.Windows` warns of, for the first shard of this node with such a warning.

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data = {"shop": np.repeat(["A", "B", "C"], 10), "day": np.tile(np.arange(10), 3), "sold": np.arange(30)}
            >>> where = tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", time="day", shards=2, to=where)
            >>> shards = ts.cluster.open(where)
            >>> spans = {"past": ("sold", -3, 0), "next": ("sold", 0, 1)}
            >>> train, valid = ts.cluster.windows(shards, spans=spans).split(8)
            >>> len(train), len(valid)
            (15, 6)
        """
        if not isinstance(shards, Shards):
            raise TypeError(f"ts.cluster.windows takes shards, ts.cluster.open(...), got {type_text(shards)}.")
        if named.get("at") is not None:
            raise ValueError("at= names points of one stash, and each node has only some of the shards. Load a stash.")
        if named.get("max_slots") is not None:
            raise ValueError(
                "max_slots= makes windows as wide as the longest run of a stash, and each shard has another one. Load "
                "a stash, or give the stop of spans a number."
            )
        counts_steps = str(named.get("gaps")) != "ignore" and not _all_in_time(named.get("spans"))
        if named.get("frequency") is None and counts_steps:
            named["frequency"] = shards.manifest.frequency

        def attempt(stash: Stash) -> Windows | NoWindowError:
            try:
                return make(stash, *arguments, **named)
            except NoWindowError as error:
                return error

        made = made_of_shards(shards.stashes, attempt)
        parts = {shard: one for shard, one in made.items() if isinstance(one, Windows)}
        refused = [(shards.stashes[shard].rows, one) for shard, one in made.items() if isinstance(one, NoWindowError)]
        if refused and not parts and shards.nodes == 1:
            raise max(refused, key=lambda pair: pair[0])[1]  # that of an empty shard says less
        return ShardedWindows(parts, shards)

    _, *parameters = signature(make).parameters.values()
    shards = Parameter("shards", Parameter.POSITIONAL_ONLY, annotation=Shards)
    windows.__signature__ = Signature(  # type: ignore[attr-defined]
        [shards, *parameters], return_annotation=ShardedWindows
    )
    return windows


def _all_in_time(spans: object) -> bool:
    return isinstance(spans, Mapping) and all(isinstance(span, During) for span in spans.values())


windows = _of_each_shard(Windows)  # with the parameters and types of `ts.Windows`
