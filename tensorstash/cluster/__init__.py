"""Beyond one machine: `ts.cluster`. Data cut into shards by entity, made by many processes, held by many nodes.

It owns the manifest of shards, how they are made, which node holds which, and what nodes tell each other. It uses
`load`, stashes, windows and segments as any user does, and knows nothing of what is inside them. Start with
`manifest.py`, then `shards.py`.
"""

from tensorstash.cluster.exchange import exchange_counts, fit_scaler
from tensorstash.cluster.make_shards import shard
from tensorstash.cluster.manifest import Manifest, ShardRecord
from tensorstash.cluster.open_shards import open  # noqa: A004  ts.cluster.open is the natural name
from tensorstash.cluster.sharded_windows import ShardedWindows
from tensorstash.cluster.shards import Shards
from tensorstash.cluster.windows import windows
from tensorstash.columns.sharding import shard_of

__all__ = [
    "Manifest",
    "ShardRecord",
    "ShardedWindows",
    "Shards",
    "exchange_counts",
    "fit_scaler",
    "open",
    "shard",
    "shard_of",
    "windows",
]


def __dir__() -> list[str]:
    return __all__
