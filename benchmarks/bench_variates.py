"""Any number of variates: a mix of 1,000 data sets of 1 to 30 columns, beside the same values as separate columns.

    python benchmarks/bench_variates.py          # a minute
    python benchmarks/bench_variates.py --quick  # the same, small, to see that it runs

Windows have 512 slots, batches as many windows as hold about 1,000 rows. "Separate columns" is the most that this
library does: one stash with a column for each of 30 variates, each a span of its own. "Padded to 30" is a mix whose
packs were all widened with NaN. "Chronos-2" is its own data set, left out where `chronos-forecasting` is missing, and
the same rule written anew with as little Python as it allows.

Before anything is timed, each row is compared with its slice. All run on one thread, in rounds that take turns.
Seconds are of the process, so that others on the machine disturb them little; the best of the rounds is shown.
"""

import argparse
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import tensorstash as ts

SLOTS, WIDEST, BATCH = 512, 30, 64

Sets = list[NDArray[np.float32]]
Batches = Iterator[dict[str, torch.Tensor]]


def made_sets(count: int) -> Sets:
    """`(rows, columns)` each; a value tells its data set, row and column."""
    rng = np.random.default_rng(0)
    lengths, widths = rng.integers(600, 6_000, count), 1 + np.arange(count) % WIDEST
    return [
        (np.arange(rows, dtype=np.float32)[:, None] * WIDEST + np.arange(width, dtype=np.float32) + k % 97 * 0.001)
        for k, (rows, width) in enumerate(zip(lengths.tolist(), widths.tolist()))
    ]


def mix_of(sets: Sets) -> ts.Mix:
    spans = {"past": (ts.each("x"), -SLOTS, 0)}
    return ts.Mix({str(k): ts.Windows(ts.load({"x": values}), spans=spans) for k, values in enumerate(sets)})


def ours(sets: Sets) -> Batches:
    return iter(ts.Loader(mix_of(sets), BATCH, shuffle=True, steps=1 << 20))


def separate(sets: Sets) -> Batches:
    """As many values from separate columns of one stash, which has as many as all sets together."""
    rows = sum(values.size for values in sets) // WIDEST
    names = [f"v{k}" for k in range(WIDEST)]
    stash = ts.load({name: np.arange(rows, dtype=np.float32) for name in names})
    windows = ts.Windows(stash, spans={name: (name, -SLOTS, 0) for name in names})
    return iter(ts.Loader(windows, BATCH // 2, shuffle=True, steps=1 << 20))


def padded(sets: Sets) -> Batches:
    wide = [np.pad(values, ((0, 0), (0, WIDEST - values.shape[1])), constant_values=np.nan) for values in sets]
    spans = {"past": ("x", -SLOTS, 0)}
    parts = {str(k): ts.Windows(ts.load({"x": values}), spans=spans) for k, values in enumerate(wide)}
    return iter(ts.Loader(ts.Mix(parts), BATCH, shuffle=True, steps=1 << 20))


def chronos_rule(sets: Sets) -> Batches:
    """A data set and a cut per sample, rows put one after the other; all contexts are whole here."""
    rng, series = np.random.default_rng(0), [torch.from_numpy(values.T.copy()) for values in sets]
    while True:
        cut = []
        for _ in range(BATCH):
            of = series[rng.integers(len(series))]
            end = int(rng.integers(SLOTS, of.shape[1] + 1))
            cut.append(of[:, end - SLOTS : end])
        groups = [torch.full((len(part),), k) for k, part in enumerate(cut)]
        yield {"past": torch.cat(cut), "past.window": torch.cat(groups)}


def chronos(sets: Sets) -> Batches:
    """The data set of the package. It cuts a target too, of one slot, and counts rows in its batches."""
    data_set: Any = import_module("chronos.chronos2").Chronos2Dataset

    inputs = [torch.from_numpy(values.T.copy()) for values in sets]
    numbers = {"n_covariates": 0, "n_future_covariates": 0}
    prepared = [
        {"context": of, "future_covariates": torch.full((len(of), 1), torch.nan), "n_targets": len(of), **numbers}
        for of in inputs
    ]
    for batch in data_set(prepared, SLOTS, 1, BATCH * 15, 1, min_past=SLOTS):
        yield {"past": batch["context"], "past.window": batch["group_ids"]}


WAYS = {
    "separate columns of one stash": separate,
    "a row per variate, ts.each": ours,
    f"padded to {WIDEST}": padded,
    "the rule of Chronos-2, written anew": chronos_rule,
    "Chronos-2's own data set": chronos,
}


def values_in(batch: dict[str, torch.Tensor]) -> tuple[int, int]:
    """The values that are data, and the bytes of the batch."""
    spans = [tensor for name, tensor in batch.items() if "." not in name]
    held = sum(tensor.numel() for tensor in spans)
    if spans[0].ndim == 3:
        held = int((~spans[0][:, 0].isnan()).sum()) * SLOTS
    return held, sum(tensor.nbytes for tensor in batch.values())


def check(sets: Sets) -> None:
    """Every row is a slice of its column."""
    loader = ts.Loader(mix_of(sets), BATCH, shuffle=True, with_ids=True, steps=3)
    for batch in loader:
        for row, window, variate in zip(batch["past"], batch["past.window"].tolist(), batch["past.variate"].tolist()):
            first = int(batch["window"][window])
            source = sets[int(batch["source"][window])]
            assert np.array_equal(row.numpy(), source[first : first + SLOTS, variate])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    sets = made_sets(40 if quick else 1_000)
    check(sets)
    made: dict[str, Batches] = {}
    best: dict[str, float] = {}
    nbytes: dict[str, float] = {}
    for name, way in WAYS.items():
        if way is chronos and find_spec("chronos") is None:
            print(f"    {name:38s} left out: chronos-forecasting is not installed")
            continue
        made[name] = way(sets)
        next(made[name])
    for _ in range(2 if quick else 15):
        for name, batches in made.items():
            values, taken, began = 0, 0, time.process_time()
            for _ in range(2 if quick else 20):
                held, size = values_in(next(batches))
                values, taken = values + held, taken + size
            rate = values / (time.process_time() - began)
            best[name], nbytes[name] = max(rate, best.get(name, 0.0)), taken / values
    print(f"{len(sets):,} data sets of 1 to {WIDEST} columns, windows of {SLOTS}, one thread")
    for name, rate in best.items():
        print(f"    {name:38s} {rate / 1e6:7.0f} M values/s  {nbytes[name]:5.2f} bytes a value")


if __name__ == "__main__":
    main()
