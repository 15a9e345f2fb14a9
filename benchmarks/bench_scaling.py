"""What fitting and applying a scaler cost: 8 float32 columns of 20 M rows, beside scikit-learn and the gather.

    python benchmarks/bench_scaling.py            # about two minutes, 3 GB
    python benchmarks/bench_scaling.py --quick    # the same on 1 M rows, to see that it runs

One thread. What both sides fit is compared before their times are printed. Applying is measured on the batches of a
Loader, whose own time of gathering in the same pass is what the ratio is of; the median over the batches.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import tensorstash as ts

COLUMNS = 8
BATCHES = 300
THEIRS = {"standard": StandardScaler, "minmax": MinMaxScaler, "maxabs": MaxAbsScaler, "robust": RobustScaler}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="1 M rows instead of 20 M")
    rows = 1_000_000 if parser.parse_args().quick else 20_000_000
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


def applied(stash: ts.Stash, length: int, by: str | None) -> float:
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


if __name__ == "__main__":
    main()
