"""Several machines: `ts.cluster`. Data are cut into shards by entity, and each node holds some of the shards.

The room owns the manifest of shards, how shards are made, which node holds which, the order in which nodes sample them,
and what nodes tell each other. It uses stashes and windows as any user does, and the steps of a load, the files of
segments and the trees of mixes as they are. Start with `manifest.py`, then `shards.py`, `sharded_windows.py` and
`order.py`.
"""

from tensorstash.cluster.exchange import exchange_counts, fit_scaler
from tensorstash.cluster.make_shards import shard
from tensorstash.cluster.make_windows import windows
from tensorstash.cluster.manifest import Manifest, ShardRecord
from tensorstash.cluster.open_shards import open  # noqa: A004  ts.cluster.open is the natural name
from tensorstash.cluster.sharded_windows import ShardedWindows
from tensorstash.cluster.shards import Shards
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
