"""Shards: windows per second of one rank over one stash and over shards of the same data; what steps and states cost.

    python benchmarks/bench_cluster.py            # about a minute, 500 MB
    python benchmarks/bench_cluster.py --quick    # the same on little data, to see that it runs

On one thread. Every window of all contestants is counted once before anything is timed.
"""

import json
import random
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import record
import torch
from timing import calling, duration, rounds_of, taking

import tensorstash as ts
from tensorstash.cluster.legs import Leg, ShardTable, fold, remainder
from tensorstash.cluster.shards import assign

SHARDS = 16
SPANS = {"past": ("x", -96, 0), "target": ("x", 0, 24)}


def main() -> None:
    quick = record.arguments(__doc__).parse_args().quick
    torch.set_num_threads(1)
    rows = [*sampling(entities=64 if quick else 1000, rows=200 if quick else 10_000, rounds=2 if quick else 15)]
    record.save("bench_cluster", rows, quick=quick)
    simulated(repeats=1 if quick else 5)


def sampling(entities: int, rows: int, rounds: int) -> Iterator[record.Row]:
    """Batches of 256 windows of 120 rows of 8 values."""
    values = np.random.default_rng(0).standard_normal((entities * rows, 8), np.float32)
    columns: dict[str, Any] = {
        "e": np.repeat(np.arange(entities), rows),
        "t": np.tile(np.arange(rows), entities),
        **{f"c{k}": values[:, k] for k in range(8)},
    }
    arguments: Any = {"columns": {"x": [f"c{k}" for k in range(8)]}, "entity": "e", "time": "t"}
    with tempfile.TemporaryDirectory() as where:
        ts.cluster.shard(columns, to=where, shards=SHARDS, progress=False, **arguments)
        shards = ts.cluster.open(where)
        ways: dict[str, Any] = {
            "one stash": ts.Windows(ts.load(columns, **arguments), spans=SPANS),
            f"{SHARDS} shards": ts.cluster.windows(shards, spans=SPANS),
        }
        ways[f"mix of {SHARDS}"] = ts.Mix({f"shard {k}": own for k, own in ways[f"{SHARDS} shards"].parts.items()})
        for windows in ways.values():
            assert sum(count_valid(batch) for batch in ts.Loader(windows, 4096, shuffle=True)) == len(windows)
        for ranks in (1, 8):
            loaders = {
                name: ts.Loader(windows, 256, shuffle=True, num_replicas=ranks, rank=0, steps=10**9)
                for name, windows in ways.items()
            }
            found = rounds_of({name: taking(iter(loader), 100) for name, loader in loaders.items()}, rounds)
            found.show(f"a batch of one of {ranks} ranks")
            yield found.row(section="Shards", case=f"{ranks} ranks")
        state = loaders[f"{SHARDS} shards"].state_dict()
        print(f"{'a state':24} {len(json.dumps(state)):,} bytes as JSON; its legs: {state['legs']}")


def count_valid(batch: dict[str, torch.Tensor]) -> int:
    return int(batch["valid"].sum()) if "valid" in batch else len(batch["target"])


def simulated(repeats: int) -> None:
    """Steps and states of 10^12 windows in 4,096 shards, on 1,250 nodes of 8 ranks, after three layouts."""
    rng = random.Random(0)
    windows = [rng.randint(1, 488_000_000) for _ in range(4096)]
    windows[0] += 10**12 - sum(windows)
    table = ShardTable(windows, partial(assign, windows))
    legs = (Leg(1250, 8, 1024, 10_000), Leg(1000, 8, 512, 7), Leg(1, 8, 64, 3))
    turns = {
        "which node holds what": calling(lambda: table.holds(1250)),
        "steps of an epoch": calling(lambda: remainder(table, [0] * len(table.windows), 1250, 8 * 1024)),
        "positions after 3 legs": calling(lambda: fold(table, legs)),
    }
    for name, turn in turns.items():
        print(f"{name:24} {duration(rounds_of({name: turn}, repeats).median(name))}")
    print(f"{'the legs':24} {len(json.dumps(legs))} bytes")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
