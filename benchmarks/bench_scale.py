"""A `Scaler` in a loader beside two in-place lines by hand, with whole windows and with empty slots.

    python benchmarks/bench_scale.py            # about three minutes on two cores, 2 GB
    python benchmarks/bench_scale.py --quick    # to see that it runs

Batches of 512 shuffled windows of 100 slots of a float32 pack of 8, 38 or 321 columns, of 40 series, on one thread and
on all. Masked windows lack one slot in thirty. All contestants take turns, and their batches are compared bit by bit
before.

scaler: `transform=[scaler]`; by entity: each series has its own constants; fills of 0: empty slots hold 0, which stays.
scaled once: `scaler.transform(windows)`.
sub_ and div_, sub_ and mul_: lines that a user writes in the loop, of which the second rounds in another way.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import record
import torch
from timing import Turn, endless, rounds_of, taking

import tensorstash as ts

SERIES, SLOTS, BATCH = 40, 100, 512
NUMBERS = 80_000_000  # of the pack
TAKEN = 60_000_000  # numbers of the batches of a turn

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Cell:
    """What all contestants make batches of."""

    columns: int
    masked: bool
    rows: int

    def windows(self, empty: float | None = None) -> ts.Windows:
        """Over the same numbers each time; `empty` is what empty slots hold."""
        rng = np.random.default_rng(0)
        kept = np.flatnonzero(rng.random(self.rows) >= self.masked / 30)
        names = [f"c{k}" for k in range(self.columns)]
        levels = rng.normal(0, 50, self.columns)
        values = {
            name: (rng.random(len(kept), np.float32) + level).astype(np.float32) for name, level in zip(names, levels)
        }
        length = self.rows // SERIES
        frame = pl.DataFrame({"series": kept // length, "t": kept % length, **values})
        pack = ts.column(names) if empty is None else ts.column(names, empty=empty)
        stash = ts.load(frame, {"x": pack}, entity="series", time="t", progress=False)
        return ts.Windows(stash, history=SLOTS, gaps="mask" if self.masked else "split")

    @property
    def name(self) -> str:
        return f"{self.columns} columns, {'masked' if self.masked else 'whole'} windows"


def loader(windows: ts.Windows, *transform: ts.Scaler) -> ts.Loader:
    return ts.Loader(windows, BATCH, shuffle=True, tail="drop", with_ids=True, transform=transform)


def by_hand(windows: ts.Windows, scaler: ts.Scaler, *, times: bool) -> Iterator[Batch]:
    center, scale = scaler.center["x"][0].float(), scaler.scale["x"][0].float()
    inverse = 1 / scale
    for batch in endless(loader(windows)):
        if times:
            batch["x"].sub_(center).mul_(inverse)
        else:
            batch["x"].sub_(center).div_(scale)
        yield batch


def main() -> None:
    options = record.arguments(__doc__).parse_args()
    numbers, rounds = (2_000_000, 1) if options.quick else (NUMBERS, 9)
    rows = []
    for columns in (8, 38, 321):
        for masked in (False, True):
            cell = Cell(columns, masked, numbers // columns)
            windows, filled = cell.windows(), cell.windows(empty=0.0)
            pooled = ts.Scaler.fit(windows, ["x"])
            each = ts.Scaler.fit(windows, ["x"], by="entity")
            check(windows, filled, pooled, each)
            steps = 1 if options.quick else max(4, TAKEN // (BATCH * SLOTS * columns))
            for threads in sorted({1, os.cpu_count() or 1}):
                torch.set_num_threads(threads)
                batches: dict[str, Iterator[Batch]] = {
                    "scaler": endless(loader(windows, pooled)),
                    "by entity": endless(loader(windows, each)),
                    **({"fills of 0": endless(loader(filled, pooled))} if masked else {}),
                    "scaled once": endless(loader(pooled.transform(windows))),
                    "sub_ and div_": by_hand(windows, pooled, times=False),
                    "sub_ and mul_": by_hand(windows, pooled, times=True),
                    "unscaled": endless(loader(windows)),
                }
                turns: dict[str, Turn] = {name: taking(one, steps) for name, one in batches.items()}
                found = rounds_of(turns, rounds)
                found.show(f"{cell.name}, {threads} thread{'s' * (threads > 1)}: a batch of {BATCH} windows")
                rows.append(found.row(section="Scaling", case=f"{cell.name}, threads: {threads}"))
    record.save("bench_scale", rows, quick=options.quick)


def check(windows: ts.Windows, filled: ts.Windows, pooled: ts.Scaler, each: ts.Scaler) -> None:
    """All make the same numbers, bit by bit; empty slots hold what they held."""
    raw, ours, once, zeros = (
        next(iter(made))
        for made in (
            loader(windows),
            loader(windows, pooled),
            loader(pooled.transform(windows)),
            loader(filled, pooled),
        )
    )
    hand = next(by_hand(windows, pooled, times=False))
    held = raw["x.observed"] if "x.observed" in raw else torch.ones(raw["x"].shape[:2], dtype=torch.bool)
    for batch in (ours, once, hand):
        assert torch.equal(batch["x"].view(torch.int32), ours["x"].view(torch.int32))
    assert torch.equal(zeros["x"], ours["x"].where(held[..., None], torch.zeros(())))
    own = next(iter(loader(windows, each)))
    constants = [table["x"].float()[raw["entity"]][:, None] for table in (each.center, each.scale)]
    assert torch.equal(own["x"][held], ((raw["x"] - constants[0]) / constants[1])[held])


if __name__ == "__main__":
    main()
