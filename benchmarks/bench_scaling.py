"""What fitting and applying a scaler cost, compared with scikit-learn and the gather: 8 float32 columns of 20 M rows.

    python benchmarks/bench_scaling.py            # about three minutes, 3 GB
    python benchmarks/bench_scaling.py --quick    # the same on 1 M rows, to see that it runs
    python benchmarks/bench_scaling.py --only derived

Then what derived columns cost: three of four float32 columns of 20 M rows of a Parquet file, computed at load, or by
torch from the loaded inputs, or by polars. Each in a process of its own that has imported and warmed up; the peak is
of its anonymous and shared memory, looked at every 3 ms, over what it had before; it includes the results.

One thread, except for loading. The fitted values of both sides are compared before their times are printed. Applying
is measured on the batches of a Loader, as a ratio to the time of gathering in the same pass; medians over the batches.
"""

import argparse
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import tensorstash as ts
from tensorstash.transforms.fitting import By

COLUMNS = 8
BATCHES = 300
THEIRS: dict[Any, Any] = {
    "standard": StandardScaler,
    "minmax": MinMaxScaler,
    "maxabs": MaxAbsScaler,
    "robust": RobustScaler,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="1 M rows instead of 20 M")
    parser.add_argument("--only", choices=["scaling", "derived"], help="one of the two parts")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*asked.child)
        return
    rows = 1_000_000 if asked.quick else 20_000_000
    if asked.only != "derived":
        scaling(rows)
    if asked.only != "scaling":
        derived(rows, 1 if asked.quick else 3)


def scaling(rows: int) -> None:
    torch.set_num_threads(1)
    table = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0)) * 3 + 7
    fitting(table)
    applying(table)


def fitting(table: torch.Tensor) -> None:
    rows, packed = len(table), ts.load({"x": table})
    print(f"fit, {COLUMNS} columns x {rows:,} rows, seconds")
    print(f"  {'':<12}{'exact':>8}{'sample':>8}{'scikit-learn':>14}")
    for kind, theirs in THEIRS.items():
        exact, ours = timed(partial(ts.Scaler.fit, packed, ["x"], kind=kind))
        sampled, _ = timed(partial(ts.Scaler.fit, packed, ["x"], kind=kind, sample=100_000))
        other, reference = timed(partial(theirs().fit, table.numpy()))
        expected = reference.transform(table[:1000].double().numpy())
        np.testing.assert_allclose(ours({"x": table[None, :1000].double()})["x"][0], expected, atol=1e-6)
        print(f"  {kind:<12}{exact:8.2f}{sampled:8.3f}{other:14.2f}")
    for entities in (1_000, 100_000):
        panel = ts.load({"e": np.arange(rows) // (rows // entities), "y": table[:, 0]}, ["y"], entity="e")
        seconds = [timed(partial(ts.Scaler.fit, panel, ["y"], kind=kind, by="entity"))[0] for kind in THEIRS]
        each = ", ".join(f"{kind} {one:.2f}" for kind, one in zip(THEIRS, seconds))
        print(f"fit by entity, 1 column, {len(panel.entities):,} entities, seconds: {each}")


def applying(table: torch.Tensor) -> None:
    print("apply, as a share of the time of gathering, batches of 1,024")
    entity, names = np.arange(len(table)) // (len(table) // 1_000), [f"c{k}" for k in range(COLUMNS)]
    separate = ts.load({"e": entity} | {name: table[:, k] for k, name in enumerate(names)}, names, entity="e")
    packed = ts.load({"e": entity, "x": table}, ["x"], entity="e")
    for stash, layout in ((separate, f"{COLUMNS} columns"), (packed, f"a pack of {COLUMNS}")):
        for length in (24, 120):
            alike, each = applied(stash, length, None), applied(stash, length, "entity")
            print(f"  {layout:<14} windows of {length:<4} {alike:6.2f}, by entity {each:.2f}")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def applied(stash: ts.Stash, length: int, by: By | None) -> float:
    """Median seconds of scaling a batch, divided by the mean seconds of gathering one."""
    windows = ts.Windows(stash, history=length)
    scaler = ts.Scaler.fit(windows, [*stash], by=by, sample=100_000)
    loader = ts.Loader(windows, 1024, shuffle=True, seed=0, with_ids=True)
    seconds = []
    for batch in loader:
        seconds.append(timed(partial(scaler, batch))[0])
        if len(seconds) == BATCHES:
            break
    stats = loader.stats()
    return statistics.median(seconds) / (stats["gather_seconds"] / stats["steps"])


# Derived columns

INPUTS = ("ask", "bid", "wind", "unit")
EXPRESSIONS = {
    "spread": pl.col("ask") - pl.col("bid"),
    "middle": (pl.col("ask") + pl.col("bid")) / 2,
    "log": (pl.col("wind") * pl.col("unit")).log1p(),
}


def at_load(path: str) -> dict[str, torch.Tensor]:
    return {**ts.load(path, EXPRESSIONS, progress=False)}


def afterwards(path: str) -> dict[str, torch.Tensor]:
    """The inputs are there until the last column has been computed."""
    stash = ts.load(path, INPUTS, progress=False)
    spread, middle = stash["ask"] - stash["bid"], (stash["ask"] + stash["bid"]) / 2
    return {"spread": spread, "middle": middle, "log": (stash["wind"] * stash["unit"]).log1p()}


def by_polars(path: str) -> dict[str, torch.Tensor]:
    """As most scripts do before they hand a frame on."""
    frame = pl.read_parquet(path, columns=[*INPUTS]).select(**EXPRESSIONS).rechunk()
    return {name: torch.from_numpy(frame[name].to_numpy(writable=True)) for name in EXPRESSIONS}


WAYS: dict[str, Callable[[str], dict[str, torch.Tensor]]] = {
    "expressions at load": at_load,
    "inputs, then torch": afterwards,
    "polars, then torch": by_polars,
}


def derived(rows: int, rounds: int) -> None:
    """Let the ways take turns, and print the best time and the highest peak of each."""
    print(f"derived columns, {len(EXPRESSIONS)} of {len(INPUTS)} float32 columns x {rows:,} rows, 20 row groups")
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "inputs.parquet")
        rng = np.random.default_rng(0)
        table = pa.table({name: rng.random(rows, dtype=np.float32) for name in INPUTS})
        pq.write_table(table, path, row_group_size=rows // 20)
        del table
        runs = [{way: run(way, path) for way in WAYS} for _ in range(rounds)]
    for way in WAYS:
        times = [one[way][0] for one in runs]
        peak = max(one[way][1] for one in runs)
        shown = " ".join(f"{seconds:.2f}" for seconds in times)
        print(f"  {way:<20} {min(times):6.2f} s   +{peak:6.0f} MB   ({shown})")
    print(f"  the results alone            +{rows * 4 * len(EXPRESSIONS) / 1e6:6.0f} MB")


def run(way: str, path: str) -> tuple[float, float]:
    """Seconds, and MB at the peak over those before."""
    command = [sys.executable, __file__, "--child", way, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = highest = _memory(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 0.003)[0]:
            highest = max(highest, _memory(process.pid))
        seconds = float(process.stdout.readline())
        assert process.stdout.readline() == "same\n"
    return seconds, (highest - before) / 1e6


def _memory(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        kinds = [line.split() for line in file if line.startswith(("RssAnon", "RssShmem"))]
    return sum(int(size) for _, size, _ in kinds) * 1024


def child(way: str, path: str) -> None:
    """Import and warm up, wait to be sent off, compute, tell the seconds, and compare with the values in float64."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as directory:
        small = str(Path(directory) / "warm.parquet")
        pq.write_table(pa.table({name: np.ones(1000, np.float32) for name in INPUTS}), small)
        WAYS[way](small)
    pa.default_memory_pool().release_unused()
    print("ready", flush=True)
    input()
    seconds, found = timed(partial(WAYS[way], path))
    print(seconds, flush=True)
    for piece in pq.ParquetFile(path).iter_batches(1_000_000):
        ask, bid, wind, unit = (column.to_numpy().astype(np.float64) for column in piece.columns)
        for name, expected in {"spread": ask - bid, "middle": (ask + bid) / 2, "log": np.log1p(wind * unit)}.items():
            here, found[name] = found[name][: len(ask)], found[name][len(ask) :]
            np.testing.assert_allclose(here.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert not any(len(rest) for rest in found.values())
    print("same", flush=True)


if __name__ == "__main__":
    main()
