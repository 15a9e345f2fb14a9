"""Forecast the temperature at three airports: from a Parquet file to batches, a model and two pictures.

The script prints what a load will cost, loads the columns once, and builds windows of 96 hours of history and 24 hours
of horizon that never cross a gap. It trains a small network and compares its error with two forecasts that need no
model: the last value, and the value 24 hours before. Then it compares windows per second, and the share of the training
time that is spent waiting for data, with a `DataLoader` that takes one sample at a time from the same tensors.

    pip install -e '.[plot]'
    python examples/quickstart.py

The pictures are `forecast.png` and `coverage.png` in `examples/out`.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

HERE = Path(__file__).parent
SOURCE = HERE / "data" / "nyc_weather.parquet"
COLUMNS = {"x": ["temp", "dewp", "humid"], "y": "temp"}  # x is a pack: one column of shape (rows, 3)
HISTORY, HORIZON = 96, 24  # hours
BATCH_SIZE, EPOCHS, PASSES = 256, 6, 5

Batch = dict[str, torch.Tensor]


def main() -> None:
    """Run all steps; it takes some seconds on two cores."""
    torch.set_num_threads(1)  # as torchrun does for each rank; this model is too small to gain from more
    print(ts.plan(SOURCE, COLUMNS, entity="origin", time="time_hour"), flush=True)
    stash = ts.load(SOURCE, COLUMNS, entity="origin", time="time_hour", progress=True)
    print(f"\n{stash}", flush=True)

    spans = {"past": ("x", -HISTORY, 0), "target": ("y", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, require=["past", "target"])
    assert stash.time is not None
    gaps = int((stash.time.diff() > stash.clock.day // 24).sum())  # steps of more than an hour
    print(f"\n{windows}\nthe warning is right: time has {gaps} gaps in these data, and no window crosses one")

    train, valid = windows.split("2013-10-01")
    model = fit(ts.Loader(train, BATCH_SIZE, shuffle=True, seed=0))
    print_errors(model, valid)
    compare_loaders(train)
    save_pictures(model, windows)


class Forecaster(torch.nn.Module):
    """The last temperature, plus a correction that a small network reads off the history relative to its last hour."""

    scale = 10.0  # degrees or per cent; keeps the inputs and outputs of the network near 1

    def __init__(self) -> None:
        super().__init__()
        width = HISTORY * len(COLUMNS["x"])
        self.network = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.GELU(), torch.nn.Linear(64, HORIZON))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """`(batch, history, columns)` to `(batch, horizon)`."""
        last = past[:, -1:]
        correction: torch.Tensor = self.network(((past - last) / self.scale).flatten(1))
        return last[..., 0] + self.scale * correction


def fit(batches: Iterable[Batch]) -> Forecaster:
    """Train a new forecaster, always from the same initial weights, with the batches of any loader."""
    torch.manual_seed(0)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for batch in batches:
            loss = (model(batch["past"]) - batch["target"]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def print_errors(model: Forecaster, valid: ts.Windows) -> None:
    """The mean absolute errors of the model and of two forecasts that need none, by airport."""
    batch = valid[:]
    past, target = batch["past"], batch["target"]
    forecasts = {"model": model(past), "last value": past[:, -1:, 0], "24 h before": past[:, -HORIZON:, 0]}
    airport, names = valid.anchors(slice(None))["entity"], valid.stash.entities
    print(f"\nvalidation MAE in degrees Fahrenheit, {len(valid):,} windows")
    print(f"  {'':<12}" + "".join(f"{name:>8}" for name in [*names, "all"]))
    for name, forecast in forecasts.items():
        error = (forecast - target).abs()
        means = [*(error[airport == k].mean() for k in range(len(names))), error.mean()]
        print(f"  {name:<12}" + "".join(f"{mean:8.2f}" for mean in means))


class PerSample(Dataset[Any]):
    """What most scripts do: a Python call and a few slices for every sample."""

    def __init__(self, cut: Callable[[int], Any], anchors: list[int]) -> None:
        self.cut, self.anchors = cut, anchors

    def __len__(self) -> int:
        return len(self.anchors)

    def __getitem__(self, index: int) -> Any:
        return self.cut(self.anchors[index])


def anchor_rows(windows: ts.Windows) -> torch.Tensor:
    """The row of each window's anchor, `(windows,)`, found by entity and time."""
    about, stash = windows.anchors(slice(None)), windows.stash
    assert stash.time is not None
    rows = torch.empty_like(about["time"])
    for entity, (low, high) in enumerate(pairwise(stash.offsets.tolist())):
        own = about["entity"] == entity
        rows[own] = low + torch.searchsorted(stash.time[low:high], about["time"][own])
    return rows


def three_loaders(windows: ts.Windows, *, shuffle: bool) -> dict[str, Iterable[Batch]]:
    """The same batches in three ways; without workers, which only add copies when the data are in memory."""
    x, y = windows.stash["x"], windows.stash["y"]
    anchors = anchor_rows(windows).tolist()

    def slices(row: int) -> Batch:
        return {"past": x[row - HISTORY : row], "target": y[row : row + HORIZON]}

    def packed(row: int) -> torch.Tensor:
        return x[row - HISTORY : row + HORIZON]

    def unpack(samples: list[torch.Tensor]) -> Batch:
        rows = torch.stack(samples)
        return {"past": rows[:, :HISTORY], "target": rows[:, HISTORY:, 0]}

    return {
        "tensorstash": ts.Loader(windows, BATCH_SIZE, shuffle=shuffle),
        "DataLoader, dict of slices": DataLoader(PerSample(slices, anchors), BATCH_SIZE, shuffle),
        "DataLoader, one packed slice": DataLoader(PerSample(packed, anchors), BATCH_SIZE, shuffle, collate_fn=unpack),
    }


class Timed:
    """A loader, and the seconds of its passes: all of them, and those for which the loop waited."""

    def __init__(self, loader: Iterable[Batch]) -> None:
        self.loader, self.seconds, self.waited = loader, 0.0, 0.0

    def __iter__(self) -> Iterator[Batch]:
        started = asked = time.perf_counter()
        for batch in self.loader:
            self.waited += time.perf_counter() - asked
            yield batch
            asked = time.perf_counter()
        self.waited += time.perf_counter() - asked
        self.seconds += time.perf_counter() - started


def compare_loaders(windows: ts.Windows) -> None:
    """Print windows per second without a model, in the best of a few passes, and the share of waiting with one."""
    for first, *others in zip(*three_loaders(windows, shuffle=False).values(), strict=True):
        assert all(torch.equal(other[name], first[name]) for other in others for name in ("past", "target"))
    print(f"\nthe same batches of {BATCH_SIZE} windows from all three, one thread")
    print(f"  {'':<30}{'windows/s':>12}{'waiting for data':>18}")
    for name, loader in three_loaders(windows, shuffle=True).items():
        passes, training = [Timed(loader) for _ in range(PASSES)], Timed(loader)
        rates = [sum(len(batch["past"]) for batch in timed) / timed.seconds for timed in passes]
        fit(training)
        print(f"  {name:<30}{max(rates):12,.0f}{training.waited / training.seconds:18.0%}")


@torch.no_grad()
def save_pictures(model: Forecaster, windows: ts.Windows) -> None:
    """Ten days of forecasts, a new one at every midnight of New York, and the coverage of the data."""
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    _, days, _ = windows.split("2013-12-01 05:00", "2013-12-11 05:00")
    times = days.anchors(slice(None))["time"]
    ids = torch.nonzero((times - times[0]) % windows.stash.clock.day == 0).flatten()
    batch = days[ids]
    entities = days.anchors(ids)["entity"]
    figure, axes = plt.subplots(3, sharex=True, sharey=True, figsize=(7.5, 7), layout="constrained")
    for k, airport in enumerate(days.stash.entities):
        own = entities == k  # windows whose horizons follow each other
        past, target = batch["past"][own], batch["target"][own]
        frame = days.to_frame(ids[own], model(past), origin=True)
        ts.plot.forecast(past[0, -HORIZON:, 0], target.flatten(), frame, axes=axes[k])
        axes[k].set_ylabel(f"{airport}, °F")
        axes[k].label_outer()
    figure.savefig(out / "forecast.png", dpi=200)

    ts.plot.coverage(ts.load(SOURCE, ["temp", "pressure"], entity="origin", time="time_hour", progress=False))
    plt.savefig(out / "coverage.png", dpi=200)
    print(f"\nforecast.png and coverage.png are in {out}")


if __name__ == "__main__":
    main()
