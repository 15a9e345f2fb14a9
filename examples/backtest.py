"""Backtest DLinear on the temperature at three airports: four folds with a rolling origin, scored as one polars frame.

Each fold trains on what was known before its cut and forecasts the two weeks after it, 24 hours ahead at every hour.
The predictions of all folds become a frame with airport and time, and the truth is joined to it from the source file.
They are compared with the value of 24 hours before.

    python examples/backtest.py
"""

from pathlib import Path

import polars as pl
import torch
from dlinear import DLinear

import tensorstash as ts

SOURCE = Path(__file__).parent / "data" / "nyc_weather.parquet"
HISTORY, HORIZON = 96, 24  # hours
FOLDS, EPOCHS = 4, 2


def main() -> None:
    """Train once per fold; it takes some seconds on two cores."""
    torch.set_num_threads(1)
    stash = ts.load(SOURCE, {"x": ["temp"]}, entity="origin", time="time_hour", dtype=torch.float32, progress=False)
    spans = {"past": ("x", -HISTORY, 0), "target": ("x", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, require=["past", "target"])

    folds = windows.folds(FOLDS, "14d", gap="1d")
    forecasts = pl.concat([predictions(fit(train), test, fold) for fold, (train, test) in enumerate(folds)])
    truth = pl.read_parquet(SOURCE, columns=["origin", "time_hour", "temp"])
    joined = forecasts.join(truth, on=["origin", "time_hour"], validate="m:1")
    print(joined)

    mae = [(pl.col(name) - pl.col("temp")).abs().mean().round(2) for name in ("dlinear", "day_before")]
    first = pl.col("anchor").min().dt.date().alias("from")
    print(joined.group_by("fold").agg(first, *mae).sort("fold"))
    print(joined.group_by("origin").agg(*mae).sort("origin"))
    print(joined.group_by(six_hours=(pl.col("step") - 1) // 6).agg(*mae).sort("six_hours"))


def fit(train: ts.Windows) -> tuple[DLinear, ts.Scaler]:
    """A model, and the scale of the rows that its training part has seen."""
    torch.manual_seed(0)
    scaler = ts.Scaler.fit(train, ["x"])
    scaled, model = scaler.transform(train), DLinear(HISTORY, HORIZON)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(EPOCHS):
        for batch in ts.Loader(scaled, 256, shuffle=True, seed=0):
            loss = (model(batch["past"]) - batch["target"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model, scaler


@torch.no_grad()
def predictions(fitted: tuple[DLinear, ts.Scaler], test: ts.Windows, fold: int) -> pl.DataFrame:
    """The forecasts of a test part in degrees: a row per window and hour, with the hours ahead."""
    model, scaler = fitted
    batch = test[:]
    before = batch["past"][:, -HORIZON:].clone()  # the scaler writes into the batch
    forecast = scaler.inverse(model(scaler(batch)["past"]), "x")
    both = torch.cat([forecast, before], dim=2)  # (windows, hours, 2)
    frame = test.to_frame(range(len(test)), both, names=["dlinear", "day_before"], origin=True, step=True)
    return frame.with_columns(fold=pl.lit(fold))


if __name__ == "__main__":
    main()
