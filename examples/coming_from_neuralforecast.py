"""A model of neuralforecast, trained from our batches, and by `NeuralForecast.fit` for some steps.

    python examples/coming_from_neuralforecast.py

Needs `pip install neuralforecast`. Its models take one dict of windows, `windows_batch`, so a plain loop can feed them.
What `NeuralForecast.fit` does besides (padding short series, scaling, early stopping) is left to the loop. Both train
on batches of as many windows, and both print how many they train on in a second; `fit` needs some of its time to set up
Lightning's trainer.
"""

import os
import sys
import time

import polars as pl
import torch
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")
INPUT, H, BATCH = 96, 24, 256
STEPS = 15  # of `fit`
KNOWN = [f"when_{k}" for k in range(4)]


def windows_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """What a model of one variable takes, `(windows, time, 1)`; known and past covariates are `(windows, time, k)`."""
    past = batch["past"].unsqueeze(-1)
    return {
        "insample_y": past,
        "insample_mask": torch.ones_like(past),
        "hist_exog": None,
        "futr_exog": batch["known"],  # over the input and the horizon
        "stat_exog": None,
    }


def model_of(steps: int) -> NHITS:
    """A small model of one variable, with what is known of the future."""
    return NHITS(
        h=H,
        input_size=INPUT,
        futr_exog_list=KNOWN,
        mlp_units=3 * [[64, 64]],
        max_steps=steps,
        windows_batch_size=BATCH,
        scaler_type="identity",
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        accelerator="cpu",
    )


def fitted_there(stash: ts.Stash, cut: str, steps: int) -> float:
    """Seconds of `NeuralForecast.fit` over the rows before the cut, in the names and types that it wants."""
    before = pl.col("time_hour") < pl.lit(cut).str.to_datetime(time_zone="UTC")
    frame = stash.to_polars().filter(before, pl.col("y").is_not_nan())
    level = (pl.col("y") - pl.col("y").mean()) / pl.col("y").std()
    rows = frame.select(
        pl.col("origin").alias("unique_id"),
        pl.col("time_hour").dt.replace_time_zone(None).alias("ds"),
        level.alias("y"),
        *(pl.col("when").arr.get(k).alias(name) for k, name in enumerate(KNOWN)),
    )
    there = NeuralForecast([model_of(steps)], freq="1h")
    began = time.perf_counter()
    there.fit(rows)
    return time.perf_counter() - began


def main() -> None:
    """Train for one epoch, print the error on the validation part, and time `fit` beside it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stash = ts.load(
        DATA,
        {"y": "temp", "when": ts.calendar("hour", "dayofyear", cyclic=True)},
        entity="origin",
        time="time_hour",
        dtype=torch.float32,
    )
    spans = {"past": ("y", -INPUT, 0), "known": ("when", -INPUT, H), "target": ("y", 0, H)}
    train, valid = ts.Windows(stash, spans=spans, require=["y"]).split("2013-10-01")
    scaler = ts.Scaler.fit(train, ["y"])
    train, valid = map(scaler.transform, (train, valid))
    model = model_of(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = ts.Loader(train, batch_size=BATCH, shuffle=True, seed=0)
    began = time.perf_counter()
    for batch in loader:
        predicted = model.loss.domain_map(model(windows_batch(batch)))
        loss = model.loss(y=batch["target"].unsqueeze(-1), y_hat=predicted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    waited = loader.stats()["wait_seconds"] / seconds
    error, count = 0.0, 0
    with torch.no_grad():
        for batch in ts.Loader(valid, batch_size=1024):
            predicted = model.loss.domain_map(model(windows_batch(batch))).squeeze(-1)
            error += float((predicted - batch["target"]).abs().sum())
            count += batch["target"].numel()
    sys.stdout.write(f"MAE in standard deviations: {error / count:.2f}; waiting for batches: {waited:.1%}\n")
    theirs = fitted_there(stash, "2013-10-01", STEPS)
    sys.stdout.write(f"NeuralForecast.fit: {STEPS * BATCH / theirs:,.0f} windows/s\n")
    sys.stdout.write(f"tensorstash: {len(train) / seconds:,.0f} windows/s\n")


if __name__ == "__main__":
    main()
