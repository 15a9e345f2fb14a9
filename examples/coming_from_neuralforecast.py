"""A model of neuralforecast, trained from our batches.

    python examples/coming_from_neuralforecast.py

Needs `pip install neuralforecast`. Its models take one dict of windows, `windows_batch`, so a plain loop can feed them.
What `NeuralForecast.fit` does besides (padding short series, scaling, early stopping) is left to the loop.
"""

import os
import sys
import time

import torch
from neuralforecast.models import NHITS

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")
INPUT, H = 96, 24


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


def main() -> None:
    """Train for one epoch and print the error on the validation part."""
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
    model = NHITS(
        h=H,
        input_size=INPUT,
        futr_exog_list=[f"when_{k}" for k in range(4)],
        mlp_units=3 * [[64, 64]],
        enable_progress_bar=False,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = ts.Loader(train, batch_size=256, shuffle=True, seed=0, transform=[scaler])
    began = time.perf_counter()
    for batch in loader:
        predicted = model.loss.domain_map(model(windows_batch(batch)))
        loss = model.loss(y=batch["target"].unsqueeze(-1), y_hat=predicted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    waited = loader.stats()["wait_seconds"] / (time.perf_counter() - began)
    error, count = 0.0, 0
    with torch.no_grad():
        for batch in ts.Loader(valid, batch_size=1024, transform=[scaler]):
            predicted = model.loss.domain_map(model(windows_batch(batch))).squeeze(-1)
            error += float((predicted - batch["target"]).abs().sum())
            count += batch["target"].numel()
    sys.stdout.write(f"MAE in standard deviations: {error / count:.2f}; waiting for batches: {waited:.1%}\n")


if __name__ == "__main__":
    main()
