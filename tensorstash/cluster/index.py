"""The index of the entities of all shards, a small stash of its own, so that every node knows their names."""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tensorstash.cluster.cut import Recipe
from tensorstash.cluster.manifest import ShardRecord
from tensorstash.cluster.store import Store
from tensorstash.cluster.write import record_of
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import shard_of
from tensorstash.columns.types import is_text
from tensorstash.ingest.load import load

INDEX = "index.safetensors"


def write_index(store: Store, recipe: Recipe, counts: Mapping[Any, int]) -> ShardRecord:
    """Write a row for each entity, by shard, and in a shard as its stash has them, with the number of its rows.

    `counts` has the entities in order of first appearance in the source.
    """
    names = [*counts]
    ordered = [names[k] for k in shard_of(names, recipe.shards).argsort(kind="stable").tolist()]
    columns = {}
    for k, name in enumerate(entity_columns(recipe.entity)):
        part = ordered if isinstance(recipe.entity, str) else [one[k] for one in ordered]
        columns[f"entity.{k}"] = pa.array(part, _value_type(recipe.schema.field(name).type))
    entity = "entity.0" if isinstance(recipe.entity, str) else [*columns]
    rows = pa.array([counts[name] for name in ordered], pa.int64())
    stash = load(pa.table(columns | {"rows": rows}), ["rows"], entity=entity)
    with store.new(INDEX) as target:
        for begin, chunk in stash._segment.chunks():
            os.pwrite(target.fd, chunk, begin)
        return record_of(INDEX, target.fd, stash)


def _value_type(arrow: pa.DataType) -> pa.DataType:
    if is_text(arrow):
        return pa.large_string()
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow
