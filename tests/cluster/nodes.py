"""Several nodes in one process: their shards, their windows with exchanged counts, and the loaders of all ranks."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import tensorstash as ts
from tensorstash.cluster.shards import Shards
from tensorstash.sampling.sharded import ShardedWindows, together

Make = Callable[[Shards], ShardedWindows]
State = dict[str, Any]
Seen = tuple[str, int]  # a window: the name of its entity, and the time of its anchor

LENGTHS = [5, 40, 1, 23, 17, 31, 9, 2, 28, 12, 50, 7, 19]  # rows of each entity


def table() -> dict[str, Any]:
    """Entities of various lengths, values that say which row they are, a gap in the middle of the longest."""
    names = np.repeat([f"e{k}" for k in range(len(LENGTHS))], LENGTHS)
    times = np.concatenate([np.arange(rows) for rows in LENGTHS])
    times[(names == "e10") & (times >= 25)] += 3
    rows = np.arange(len(names))
    size = np.repeat(np.arange(len(LENGTHS)) * 10.0, LENGTHS)
    sky = np.where(rows % 3 == 0, "clear", "rain")
    return {"e": names, "t": times, "y": rows.astype(np.float32), "sky": sky, "size": size}


ARGUMENTS: dict[str, Any] = {"columns": ["y", "sky"], "entity": "e", "time": "t", "static": ["size"]}


def cut(to: Path, shards: int = 6) -> Path:
    ts.cluster.shard(table(), to=to, shards=shards, **ARGUMENTS)
    return to


def whole() -> ts.Stash:
    return ts.load(table(), **ARGUMENTS)


def windows_of(shards: Shards) -> ShardedWindows:
    return ts.cluster.windows(shards, spans={"past": ("y", -2, 0), "sky": ("sky", 0, 1)})


def on_nodes(path: Path, nodes: int, make: Make = windows_of) -> list[ShardedWindows]:
    """The windows on every node, as after `exchange_counts`, which needs a process for each rank."""
    own = [make(ts.cluster.open(path, node, nodes)) for node in range(nodes)]
    counts = {shard: count for windows in own for shard, count in windows.own_counts().items()}
    return [replace(windows, counts=together([counts[shard] for shard in sorted(counts)])) for windows in own]


def loaders_of(windows: Sequence[ShardedWindows], ranks: int, batch_size: int | None, **more: Any) -> list[ts.Loader]:
    """The loaders of all ranks, node by node."""
    total = len(windows) * ranks
    more = {"shuffle": True, "with_ids": True} | more
    return [
        ts.Loader(windows[rank // ranks], batch_size, num_replicas=total, rank=rank, **more) for rank in range(total)
    ]


def steps_of(loaders: Sequence[ts.Loader]) -> Iterator[list[dict[str, Any]]]:
    """One pass of all ranks, step by step; all end together."""
    for step in zip_longest(*loaders):
        assert all(batch is not None for batch in step), "a rank has no batch at a step at which another has one"
        yield [*step]


def seen_in(step: Sequence[dict[str, Any]], loaders: Sequence[ts.Loader]) -> list[Seen]:
    """The windows of a step on all ranks, without filler; entities are numbered the same on all nodes."""
    found = []
    for batch, loader in zip(step, loaders):
        names = names_of(loader.windows)
        pairs = zip(batch["entity"].tolist(), batch["anchor"].tolist(), batch["valid"].tolist())
        found += [(names[entity], anchor) for entity, anchor, valid in pairs if valid]
    return found


def names_of(windows: ShardedWindows) -> list[str]:
    """The entities of all shards, of which only those of this node's shards are known here."""
    offsets = windows.division.entity_offsets
    names = [""] * int(offsets[-1])
    for shard, own in windows.parts.items():
        names[offsets[shard] : offsets[shard + 1]] = own.stash.entities
    return names


def expected(windows: ts.Windows) -> list[Seen]:
    """All windows of one stash."""
    about = windows.anchors(range(len(windows)))
    names = windows.stash.entities
    return sorted((names[e], t) for e, t in zip(about["entity"].tolist(), about["time"].tolist()))


def state_of(loaders: Sequence[ts.Loader]) -> State:
    """The state, which is the same on every rank, through JSON."""
    states = [loader.state_dict() for loader in loaders]
    assert states == [states[0]] * len(states)
    loaded: State = json.loads(json.dumps(states[0]))
    assert loaded == states[0]
    return loaded
