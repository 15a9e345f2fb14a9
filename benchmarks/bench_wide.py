"""Hundreds of columns: scaled batch by batch, or once, beside TSLib's way: ms for a batch.

    python benchmarks/bench_wide.py            # about half a minute, 1 GB
    python benchmarks/bench_wide.py --quick    # small, to see that it runs

26,304 rows of 321 columns, as in the data set Electricity; batches of 32 windows of 96 + 144 rows, half of which
overlap. All ways yield the same windows in float32, which is checked first.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray
from timing import Turn, rounds_of, taking
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
        "float32, scaled once from float64": loader(scaler.transform(wide, dtype=torch.float32)),
        "float32, scaled in each batch": loader(narrow, of_narrow),
        "float64, scaled once": loader(scaled, as_float),
        "float64, scaled in each batch": loader(wide, scaler, as_float),
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


def turn_of(make: Callable[[bool], Any], count: int) -> Turn:
    """So many batches of a new epoch, after its first two."""

    def turn() -> float:
        batches = iter(make(True))
        for _ in range(2):
            next(batches)
        return taking(batches, count)()

    return turn


def main() -> None:
    quick = record.arguments(__doc__).parse_args().quick
    effort = QUICK if quick else Effort()
    made = ways(effort)
    check(made)
    found = rounds_of({name: turn_of(make, effort.batches) for name, make in made.items()}, effort.rounds)
    found.show(f"a batch of {BATCH} windows of {effort.columns} columns")
    record.save("bench_wide", [found.row(section="Many columns", case=f"{effort.columns} columns")], quick=quick)


if __name__ == "__main__":
    main()
