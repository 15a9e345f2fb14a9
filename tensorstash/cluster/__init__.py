"""Beyond one machine: `ts.cluster`. Data cut into shards by entity, made by many processes, held by many nodes.

It owns the manifest of shards, how they are made, and which node holds which. It uses `load`, stashes and segments as
any user does, and knows nothing of what is inside them. Start with `manifest.py`, then `shards.py`.
"""

from tensorstash.cluster.hold import open  # noqa: A004  ts.cluster.open is the natural name
from tensorstash.cluster.make import shard
from tensorstash.cluster.manifest import Manifest, ShardRecord
from tensorstash.cluster.shards import Shards
from tensorstash.columns.sharding import shard_of

__all__ = ["Manifest", "ShardRecord", "Shards", "open", "shard", "shard_of"]
