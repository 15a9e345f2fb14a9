"""Shards: windows per second of one rank over one stash and over shards of the same data; what steps and states cost.

    python benchmarks/bench_cluster.py            # about a minute, 500 MB
    python benchmarks/bench_cluster.py --quick    # the same on little data, to see that it runs

Contestants take turns in short rounds, on one thread; medians, and ratios taken round by round. Every window of both
is counted once before anything is timed.
"""

import argparse
import gc
import json
import random
import statistics
import tempfile
import time
import tracemalloc
import warnings
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

import tensorstash as ts
from tensorstash.cluster.legs import Leg, ShardTable, fold, remainder
from tensorstash.cluster.sharded_windows import Count, merge_counts
from tensorstash.cluster.shards import assign

SHARDS = 16
SPANS = {"past": ("x", -96, 0), "target": ("x", 0, 24)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    sampling(entities=64 if quick else 1000, rows=200 if quick else 10_000, rounds=2 if quick else 15)
    simulated(repeats=1 if quick else 5)


def sampling(entities: int, rows: int, rounds: int) -> None:
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
            loaders = [
                ts.Loader(windows, 256, shuffle=True, num_replicas=ranks, rank=0, steps=10**9)
                for windows in ways.values()
            ]
            report(f"{ranks} ranks", [*ways], taken(loaders, rounds))
        state = loaders[1].state_dict()
        print(f"{'a state':24} {len(json.dumps(state)):,} bytes as JSON; its legs: {state['legs']}")


def count_valid(batch: dict[str, torch.Tensor]) -> int:
    return int(batch["valid"].sum()) if "valid" in batch else len(batch["target"])


def taken(loaders: list[ts.Loader], rounds: int, steps: int = 100) -> list[list[float]]:
    """Windows per second of each loader in each round, the first round left out."""
    passing: list[Iterator[Any]] = [iter(loader) for loader in loaders]
    rates: list[list[float]] = [[] for _ in loaders]
    for _ in range(rounds + 1):
        for batches, own in zip(passing, rates):
            began = time.perf_counter()
            count = sum(len(batch["target"]) for batch in islice(batches, steps))
            own.append(count / (time.perf_counter() - began))
    return [own[1:] for own in rates]


def report(name: str, names: list[str], rates: list[list[float]]) -> None:
    """The medians, and how many times as many windows per second as the first each other one has."""
    shown = ", ".join(f"{who} {statistics.median(own) / 1e3:,.0f}" for who, own in zip(names, rates))
    ratios = (statistics.median(b / a for a, b in zip(rates[0], own)) for own in rates[1:])
    print(f"{name:24} {shown} thousand windows a second; ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def simulated(repeats: int) -> None:
    """Steps and states of 10^12 windows in 4,096 shards, on 1,250 nodes of 8 ranks, after three layouts."""
    rng = random.Random(0)
    windows = [rng.randint(1, 488_000_000) for _ in range(4096)]
    windows[0] += 10**12 - sum(windows)
    counts = [Count(count, 10**9 + k, 10**10 + k, 10**9 + k) for k, count in enumerate(windows)]
    table, held, peak = table_of(counts)
    legs = (Leg(1250, 8, 1024, 10_000), Leg(1000, 8, 512, 7), Leg(1, 8, 64, 3))
    works: dict[str, Callable[[], object]] = {
        "which node holds what": lambda: table.holds(1250),
        "steps of an epoch": lambda: remainder(table, [0] * len(table.windows), 1250, 8 * 1024),
        "positions after 3 legs": lambda: fold(table, legs),
    }
    for name, work in works.items():
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            assert work() is not None
            times.append(time.perf_counter() - began)
        print(f"{name:24} {statistics.median(times) * 1e3:.1f} ms")
    print(f"{'the table on a rank':24} {held / 1e3:.0f} KB, {peak / 1e3:.0f} KB while it is made")
    print(f"{'the legs':24} {len(json.dumps(legs))} bytes")


def table_of(counts: list[Count]) -> tuple[ShardTable, int, int]:
    """What a rank keeps of the counts of all shards, and of their rows: the bytes of it, and the most meanwhile."""
    tracemalloc.start()
    known = merge_counts(counts)
    table = ShardTable(known.windows, partial(assign, array("q", known.windows)))
    gc.collect()  # it also empties the free lists of the interpreter
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return table, held, peak


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
