"""Shards of sources of other layouts hold the series that a load of the whole holds; computed series are refused."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorstash as ts


def of_shards(path: Path) -> dict[str, list[Any]]:
    """The rows of each entity, over all shards."""
    shards = ts.cluster.open(path)
    whole = [stash for stash in shards.stashes.values() if stash.rows]
    return {name: rows_of(stash, name) for stash in whole for name in stash.entities}


def rows_of(stash: ts.Stash, name: str) -> list[Any]:
    row = {key: tensor.tolist() for key, tensor in stash.series(name).items()}
    return [row, {key: tensor[stash.entities.index(name)].item() for key, tensor in stash.static.items()}]


@pytest.mark.parametrize("layout", ["lists", "wide"])
def test_shards_hold_the_series_of_the_whole(layout: Literal["lists", "wide"], tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    kind: dict[str, Any]
    if layout == "lists":
        lists = [(np.arange(5.0 + k % 7) + k).tolist() for k in range(30)]
        starts = pa.array([datetime(2024, 1, 1)] * 30, pa.timestamp("us"))
        names = [f"item {k}" for k in range(30)]
        table = pa.table({"name": names, "start": starts, "y": lists, "kind": [k % 3 for k in range(30)]})
        pq.write_table(table, source, row_group_size=7)
        kind = {"columns": ["y"], "static": {"kind": "kind"}, "time": ts.regular("start", "1h")}
    else:
        series = {f"series {k}": np.arange(10.0) + k for k in range(9)}
        pl.DataFrame({"t": np.arange(10), **series}).write_parquet(source)
        kind = {"columns": {"y": [*series]}, "time": "t"}
    whole = ts.load(source, entity="name", layout=layout, **kind)
    ts.cluster.shard(source, entity="name", layout=layout, shards=4, to=tmp_path / "shards", **kind)
    assert of_shards(tmp_path / "shards") == {name: rows_of(whole, name) for name in whole.entities}


def test_series_that_are_computed_are_refused_with_the_remedy(tmp_path: Path) -> None:
    frame = pl.DataFrame({"e": ["a", "b"] * 5, "t": np.arange(10), "y": np.arange(10.0)})
    columns = {"step": ts.per_entity(pl.col("y").diff())}
    message = (
        f"Shards are cut while rows are read, before those of an entity are together; got {columns['step']!r}. Load "
        "each shard with ts.load(..., shard=(k, n), file=...), which computes it."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ts.cluster.shard(frame, columns, entity="e", time="t", shards=3, to=tmp_path)
    whole = ts.load(frame, columns, entity="e", time="t")
    for k in range(3):
        own = ts.load(frame, columns, entity="e", time="t", shard=(k, 3))
        for name in own.entities:
            np.testing.assert_array_equal(own.series(name)["step"], whole.series(name)["step"])
