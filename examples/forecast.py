"""Forecast the hours after the end of the data at three airports: quantiles, as a picture and as a Parquet file.

A small network reads 96 hours of weather, and what is known of the next 24 hours: the hour of the day and the day of
the year, which `ts.calendar` gives for times behind the data too. It is trained on the windows before December,
compared with the value of 24 hours before on those of December, and asked for the hours behind the last row of each
airport.

    pip install -e '.[plot]'
    python examples/forecast.py

`next_day.png` and `next_day.parquet` are written to `examples/out`.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import polars as pl
import torch

import tensorstash as ts

HERE = Path(__file__).parent
SOURCE = HERE / "data" / "nyc_weather.parquet"
HISTORY, HORIZON = 96, 24  # hours
QUANTILES = (0.1, 0.5, 0.9)
NAMES = ["low", "median", "high"]
EPOCHS, SHOWN = 3, 72  # hours of history in the picture


def main() -> None:
    """Train, compare and forecast; it takes some seconds on two cores."""
    torch.set_num_threads(1)
    when = ts.calendar("hour", "dayofyear", cyclic=True)
    columns: dict[str, Any] = {"x": ["temp", "dewp", "humid"], "y": "temp", "when": when}
    stash = ts.load(SOURCE, columns, entity="origin", time="time_hour", progress=False)
    spans = {"past": ("x", -HISTORY, 0), "ahead": ("when", 0, HORIZON), "target": ("y", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, require=["past", "target"])
    train, december = windows.split("2013-12-01")

    model = fit(train)
    print_errors(model, december)

    latest = windows.latest()  # one window per airport; its horizon lies behind the data
    ids = range(len(latest))
    with torch.no_grad():
        quantiles = model(latest[:]).sort(-1).values  # a network may give them in another order
    forecast = latest.to_frame(ids, quantiles, names=NAMES)
    print(f"\n{forecast}")
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    forecast.write_parquet(out / "next_day.parquet")
    save_picture(latest, forecast, out / "next_day.png")
    print(f"\nnext_day.png and next_day.parquet are in {out}")


class Forecaster(torch.nn.Module):
    """The last temperature, plus what a small network makes of the history relative to it, and of the calendar."""

    scale = 10.0  # degrees or per cent; keeps the inputs and outputs of the network near 1

    def __init__(self) -> None:
        super().__init__()
        inputs = HISTORY * 3 + HORIZON * 4
        outputs = HORIZON * len(QUANTILES)
        self.network = torch.nn.Sequential(torch.nn.Linear(inputs, 64), torch.nn.GELU(), torch.nn.Linear(64, outputs))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The quantiles, `(batch, horizon, 3)`."""
        past = batch["past"]
        last = past[:, -1:]
        seen = torch.cat([((past - last) / self.scale).flatten(1), batch["ahead"].flatten(1)], 1)
        found: torch.Tensor = self.network(seen).view(len(past), HORIZON, len(QUANTILES))
        return last[..., :1] + self.scale * found


def fit(train: ts.Windows) -> Forecaster:
    """The weights with little pinball loss, which is least at the quantiles."""
    torch.manual_seed(0)
    model, levels = Forecaster(), torch.tensor(QUANTILES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for batch in ts.Loader(train, 256, shuffle=True, seed=0):
            error = model(batch) - batch["target"][..., None]
            loss = (error * -levels).maximum(error * (1 - levels)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def print_errors(model: Forecaster, windows: ts.Windows) -> None:
    """The mean absolute error beside that of the day before, and how many values lie between the outer quantiles."""
    batch = windows[:]
    low, median, high = model(batch).unbind(2)
    target, before = batch["target"], batch["past"][:, -HORIZON:, 0]
    errors = [float((one - target).abs().mean()) for one in (median, before)]
    within = float(((low <= target) & (target <= high)).float().mean())
    print(f"{len(windows):,} windows of December: MAE {errors[0]:.2f} °F, of the value 24 h before {errors[1]:.2f} °F")
    print(f"{within:.0%} of the values lie between the quantiles {QUANTILES[0]} and {QUANTILES[-1]}")


def save_picture(latest: ts.Windows, forecast: pl.DataFrame, path: Path) -> None:
    """The forecasts behind the last days of the data."""
    figure, axes = plt.subplots(3, sharex=True, sharey=True, figsize=(7.5, 7), layout="constrained")
    for k, airport in enumerate(forecast.partition_by("origin", maintain_order=True)):
        ts.plot.forecast(latest[k]["past"][-SHOWN:, 0], prediction=airport, axes=axes[k])
        axes[k].set_ylabel(f"{airport['origin'][0]}, °F")
        axes[k].label_outer()
    figure.savefig(path, dpi=200)


if __name__ == "__main__":
    main()
