"""A `Dataset` that slices arrays in `__getitem__`, and the same windows from a stash: compared bit by bit, and timed.

    python examples/coming_from_dataset.py

Needs nothing but what is installed with tensorstash.
"""

import os
import sys
import time
from collections.abc import Iterable

import polars as pl
import torch
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")
HISTORY, HORIZON, BATCH = 96, 24, 256


class Slices(Dataset[dict[str, torch.Tensor]]):
    """What most projects write: the windows of one series, by rows."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.x = torch.tensor(frame.select("temp", "dewp", "humid").to_numpy())
        self.y = torch.tensor(frame["temp"].to_numpy())

    def __len__(self) -> int:
        return len(self.y) - HISTORY - HORIZON + 1

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        middle = k + HISTORY
        return {"past": self.x[k:middle], "target": self.y[middle : middle + HORIZON]}


def windows_per_second(batches: Iterable[dict[str, torch.Tensor]]) -> float:
    """How fast a loop gets its batches."""
    began = time.perf_counter()
    count = sum(len(batch["past"]) for batch in batches)
    return count / (time.perf_counter() - began)


def main() -> None:
    """Compare every window, then time an epoch of each."""
    frame = pl.read_parquet(DATA).filter(pl.col("origin") == "JFK").sort("time_hour")
    slices = Slices(frame)
    stash = ts.load(frame, {"x": ["temp", "dewp", "humid"], "y": "temp"}, time="time_hour")
    spans = {"past": ("x", -HISTORY, 0), "target": ("y", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, gaps="ignore")  # rows are counted, as the class does
    batch = windows[:]
    differ = sum(
        batch[name][k].numpy().tobytes() != slices[k][name].numpy().tobytes()
        for k in range(len(slices))
        for name in spans
    )
    sys.stdout.write(f"{len(windows):,} windows of {len(slices):,}, {differ} spans differ\n")
    ways: dict[str, Iterable[dict[str, torch.Tensor]]] = {
        "DataLoader over the class": DataLoader(slices, BATCH, shuffle=True),
        "DataLoader over the class, 2 workers": DataLoader(slices, BATCH, shuffle=True, num_workers=2),
        "DataLoader over ts.Windows": DataLoader(windows, BATCH, shuffle=True),  # type: ignore[arg-type]
        "ts.Loader": ts.Loader(windows, BATCH, shuffle=True),
    }
    for name, batches in ways.items():
        sys.stdout.write(f"{name}: {windows_per_second(batches):,.0f} windows/s\n")


if __name__ == "__main__":
    main()
