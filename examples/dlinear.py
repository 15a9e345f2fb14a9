"""DLinear on ETTh1, with the protocol of the paper: a check of windows, splits and scaling against published numbers.

"Are Transformers Effective for Time Series Forecasting?" (Zeng et al., 2023): 336 hours of 7 variables in, 96 hours
out; 12, 4 and 4 months of 30 days for training, validation and test; standardized with the training part's statistics;
MSE and MAE over all variables and every window of the test part. The paper's table has 0.375 and 0.399.

PATH is ETTh1.csv of https://github.com/zhouhaoyi/ETDataset.

    python examples/dlinear.py PATH
    python examples/dlinear.py PATH --seeds 5
"""

import argparse
import copy
import statistics
import time
from pathlib import Path

import polars as pl
import torch

import tensorstash as ts

HISTORY, HORIZON = 336, 96  # hours
MONTH = 30 * 24  # hours
PARTS = (12, 16, 20)  # months at which training, validation and test end
BATCH_SIZE, EPOCHS, PATIENCE, RATE = 32, 10, 3, 0.005  # as in the paper's script for ETTh1


def main() -> None:
    """Train once per seed and print the errors on the test part; a seed takes half a minute."""
    parser = argparse.ArgumentParser(description="DLinear on ETTh1")
    parser.add_argument("path", type=Path, help="ETTh1.csv")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="at most")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    raw = parts(arguments.path)
    scaler = ts.Scaler.fit(raw[0], ["x"])
    train, valid, test = map(scaler.transform, raw)
    print(f"{train.stash}\n{scaler}\n{len(train):,}, {len(valid):,} and {len(test):,} windows\n", flush=True)
    found = []
    for seed in range(arguments.seeds):
        began = time.perf_counter()
        model = fit(train, valid, seed, arguments.epochs)
        found.append(errors(model, test))
        mse, mae = found[-1]
        print(f"seed {seed}: MSE {mse:.4f}  MAE {mae:.4f}  in {time.perf_counter() - began:.0f} s", flush=True)
    mse, mae = map(statistics.mean, zip(*found, strict=True))
    print(f"mean:   MSE {mse:.4f}  MAE {mae:.4f}  (paper: 0.375 and 0.399)")


def parts(path: Path) -> tuple[ts.Windows, ...]:
    """Training, validation and test windows; rows after 20 months are not used."""
    frame = pl.read_csv(path, try_parse_dates=True)
    variables = [name for name in frame.columns if name != "date"]
    stash = ts.load(frame, {"x": variables}, time="date", dtype=torch.float32, progress=False)
    windows = ts.Windows(stash, spans={"past": ("x", -HISTORY, 0), "target": ("x", 0, HORIZON)})
    return windows.split(*(frame["date"][months * MONTH] for months in PARTS))[:3]


class DLinear(torch.nn.Module):
    """A moving average and what remains, each mapped to the horizon by a linear layer that all variables share."""

    def __init__(self, history: int, horizon: int, kernel: int = 25) -> None:
        super().__init__()
        self.reach = (kernel - 1) // 2
        self.trend = torch.nn.Linear(history, horizon)
        self.rest = torch.nn.Linear(history, horizon)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """`(batch, history, variables)` to `(batch, horizon, variables)`."""
        series = past.transpose(1, 2)
        padded = torch.nn.functional.pad(series, (self.reach, self.reach), "replicate")
        smooth = torch.nn.functional.avg_pool1d(padded, 2 * self.reach + 1, stride=1)
        forecast: torch.Tensor = self.trend(smooth) + self.rest(series - smooth)
        return forecast.transpose(1, 2)


def fit(train: ts.Windows, valid: ts.Windows, seed: int, epochs: int) -> DLinear:
    """The weights with the least validation error; the rate is halved from the third epoch on, as in the paper."""
    torch.manual_seed(seed)
    model = DLinear(HISTORY, HORIZON)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** max(0, epoch - 1))
    loader = ts.Loader(train, BATCH_SIZE, shuffle=True, seed=seed, tail="drop")
    best, kept, waited = float("inf"), model.state_dict(), 0
    for _ in range(epochs):
        for batch in loader:
            loss = (model(batch["past"]) - batch["target"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        mse, _ = errors(model, valid)
        waited += 1
        if mse < best:
            best, kept, waited = mse, copy.deepcopy(model.state_dict()), 0
        if waited == PATIENCE:
            break
    model.load_state_dict(kept)
    return model


@torch.no_grad()
def errors(model: DLinear, windows: ts.Windows) -> tuple[float, float]:
    """MSE and MAE over all windows, hours and variables, on the standardized scale."""
    squares = absolute = 0.0
    for batch in ts.Loader(windows, 512):
        apart = (model(batch["past"]) - batch["target"]).double()
        squares += float(apart.square().sum())
        absolute += float(apart.abs().sum())
    count = len(windows) * HORIZON * windows.stash["x"].shape[1]
    return squares / count, absolute / count


if __name__ == "__main__":
    main()
