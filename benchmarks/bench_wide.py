"""Hundreds of columns: scaled batch by batch, or once, beside TSLib's way: ms for a batch.

    python benchmarks/bench_wide.py            # about half a minute, 1 GB
    python benchmarks/bench_wide.py --quick    # small, to see that it runs

26,304 rows of 321 columns, as in the data set Electricity; batches of 32 windows of 96 + 144 rows, half of which
overlap. All ways yield the same windows in float32, which is checked first. They take turns in short rounds; the
figures are medians, with the fastest and the slowest round.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

BATCH, HISTORY, LABEL, HORIZON = 32, 96, 48, 96
SPANS = {"past": ("x", -HISTORY, 0), "target": ("x", -LABEL, HORIZON)}

CHECKED = 20  # batches

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Effort:
    """The size of the data, and what is measured."""

    rows: int = 26_304
    columns: int = 321
    rounds: int = 9
    batches: int = 40


QUICK = Effort(rows=400, columns=7, rounds=1, batches=2)


class Items(Dataset[Any]):
    """A window per call, from an array that is scaled already, as in TSLib."""

    def __init__(self, scaled: NDArray[np.float64]) -> None:
        self.scaled = scaled

    def __len__(self) -> int:
        return len(self.scaled) - HISTORY - HORIZON + 1

    def __getitem__(self, index: int) -> Any:
        end = index + HISTORY
        return self.scaled[index:end], self.scaled[end - LABEL : end + HORIZON]


def as_float(batch: Batch) -> Batch:
    return {name: entry.float() for name, entry in batch.items()}


def ways(effort: Effort) -> dict[str, Callable[[bool], Any]]:
    """Functions to the batches of an epoch, shuffled or not."""
    values = torch.from_numpy(np.random.default_rng(0).normal(100, 20, (effort.rows, effort.columns)))
    wide, narrow = ts.load({"x": values}), ts.load({"x": values.float()})
    scaler = ts.Scaler.fit(wide, ["x"])
    of_narrow = ts.Scaler.fit(narrow, ["x"])
    scaled = scaler.transform(wide)
    items = Items(scaled["x"].numpy().copy())

    def loader(stash: ts.Stash, *transform: Any) -> Callable[[bool], Any]:
        windows = ts.Windows(stash, spans=SPANS)
        return lambda shuffle: ts.Loader(windows, BATCH, shuffle=shuffle, tail="drop", transform=transform)

    def tslib(shuffle: bool) -> Iterator[Batch]:
        for past, target in DataLoader(items, BATCH, shuffle=shuffle, drop_last=True):
            yield {"past": past.float(), "target": target.float()}

    return {
        "float64, scaled in each batch": loader(wide, scaler, as_float),
        "float64, scaled once": loader(scaled, as_float),
        "float32, scaled in each batch": loader(narrow, of_narrow),
        "float32, scaled once from float64": loader(scaler.transform(wide, dtype=torch.float32)),
        "as in TSLib": tslib,
    }


def check(made: dict[str, Callable[[bool], Any]]) -> None:
    """All yield the same first windows; those that are scaled in float32 up to its rounding."""
    expected = [*itertools.islice(made["as in TSLib"](False), CHECKED)]
    for name, make in made.items():
        found = 0
        for one, two in zip(expected, make(False)):
            for span in SPANS:
                tolerance = 1e-4 if name == "float32, scaled in each batch" else 0.0
                torch.testing.assert_close(two[span], one[span], rtol=0, atol=tolerance, msg=name)
            found += 1
        assert found == len(expected) > 0, name


def milliseconds(batches: Any, count: int) -> float:
    """Of a batch, after the first two of an epoch."""
    running = iter(batches)
    for _ in range(2):
        next(running)
    began = time.perf_counter()
    for _ in range(count):
        batch = next(running)  # noqa: F841  held until the next one is there, as in a loop
    return (time.perf_counter() - began) * 1e3 / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, to see that it runs")
    effort = QUICK if parser.parse_args().quick else Effort()
    made = ways(effort)
    check(made)
    rounds = [
        {name: milliseconds(make(True), effort.batches) for name, make in made.items()} for _ in range(effort.rounds)
    ]
    for name in made:
        own = [found[name] for found in rounds]
        print(f"{name:34}{statistics.median(own):7.2f} ms a batch ({min(own):.2f} to {max(own):.2f})")


if __name__ == "__main__":
    main()
