"""The load of tomorrow from forecasts of the weather, as they were known: made load and made runs of three sites.

A run of the weather is issued every six hours, holds the next 60 hours, errs more the farther it looks ahead, and
arrives five hours after its issue. A window at t sees the load of two days before t, and for each of the next 24 hours
the newest forecast that had arrived before t. A linear model trains on such windows for a few steps. Then the newest
windows, whose horizon is tomorrow, see the newest run.

That no window sees a forecast from its future is checked in two ways: by the times of arrival, and by poison, which
changes all that arrives at some time or later and must not change a bit of the windows until then. `out/versions.png`
shows one window and the versions that it sees.

    pip install -e '.[plot]'
    python examples/forecast_runs.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import torch

import tensorstash as ts

SITES, DAYS, LEADS, LATE, AHEAD = 3, 40, 60, 5, 24  # leads, the delay of a run and the horizon in hours
HOURS = DAYS * 24
BEGIN = pl.datetime(2024, 3, 1)
HOUR = 3_600_000_000  # microseconds


def main() -> None:
    """Make the tables, train, check, and forecast tomorrow."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load, runs = made()
    windows = seen_from(load, runs)
    print(f"{windows.stash.rows:,} hours of load, {len(runs):,} forecasts, {len(windows):,} windows")
    check_arrivals(windows)
    check_poison(windows, load, runs)
    train, _, test = windows.split("2024-03-28", "2024-04-01")
    model = fit(train)
    error, day_before = errors(model, test)
    print(f"{len(test):,} test windows: error {error:.2f} MW, of the day before {day_before:.2f} MW")
    newest = windows.latest()
    with torch.no_grad():
        tomorrow = newest.to_frame(range(len(newest)), predicted(model, newest[:]), names=["load"])
    print(tomorrow)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    save_picture(windows, runs, out / "versions.png")


def made() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The load of each site and hour, which follows the temperature, and all runs of forecasts of the temperature."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 20, (SITES, HOURS + LEADS + 23))
    weather = np.lib.stride_tricks.sliding_window_view(noise, 24, axis=1).mean(2)
    temp = 10 + weather + 4 * np.sin(np.arange(HOURS + LEADS) / 24 * 2 * np.pi)
    site, hour = np.indices((SITES, HOURS)).reshape(2, -1)
    values = 60 - 1.5 * temp[site, hour] + rng.normal(0, 1, len(site))
    load = pl.DataFrame({"site": site, "hour": hour, "load": values.astype(np.float32)})
    of, run, lead = np.indices((SITES, HOURS // 6, LEADS)).reshape(3, -1)
    run *= 6
    guess = temp[of, run + lead] + rng.normal(0, 0.05, len(of)) * lead
    runs = pl.DataFrame({"site": of, "run": run, "lead": lead, "temp": guess.astype(np.float32)})
    return (
        load.with_columns(hour=BEGIN + pl.duration(hours="hour")),
        runs.select(
            "site",
            "temp",
            valid=BEGIN + pl.duration(hours=pl.col("run") + pl.col("lead")),
            issued=BEGIN + pl.duration(hours="run"),
        ),
    )


def seen_from(load: pl.DataFrame, runs: pl.DataFrame) -> ts.Windows:
    """Windows over the load, which see the runs that had arrived."""
    arrived = pl.col("issued") + pl.duration(hours=LATE)
    weather = ts.load(runs, ["temp"], entity="site", time="valid", known=arrived, progress=False)
    stash = ts.load(load, ["load"], entity="site", time="hour", progress=False)
    spans = {
        "past": ("load", -48, 0),
        "temp": ts.During("temp", "0h", f"{AHEAD}h", every="1h", min_rows=AHEAD, age=True, table="weather"),
        "target": ("load", 0, AHEAD),
    }
    return ts.Windows(stash, spans=spans, tables={"weather": weather})


def check_arrivals(windows: ts.Windows) -> None:
    """Every forecast of every window arrived before t, and is the newest run that did."""
    delay = windows[:]["temp.delay"] // HOUR
    assert int(delay.min()) == 1, "a forecast that arrives at t is not known before it"
    assert int(delay.max()) == 6, "there is a run every six hours"
    print("every forecast arrived 1 to 6 hours before its window")


def check_poison(windows: ts.Windows, load: pl.DataFrame, runs: pl.DataFrame) -> None:
    """Runs that arrive at t or later do not change the windows until t, and do change later ones."""
    moment = windows.anchors(range(len(windows)))["time"]
    t = int(moment.median())
    arrived = pl.col("issued") + pl.duration(hours=LATE)
    poison = pl.when(arrived < pl.lit(t).cast(pl.Datetime("us"))).then("temp").otherwise(pl.lit(-99, pl.Float32))
    poisoned = seen_from(load, runs.with_columns(temp=poison))
    same = (windows[:]["temp"] == poisoned[:]["temp"]).all(1)
    assert bool(same[moment <= t].all()), "a window sees a forecast from its future"
    assert not bool(same[moment > t + 6 * HOUR].any()), "a window does not see the newest run"
    print(f"{int(same.sum()):,} of {len(same):,} windows do not change if all that arrives later does")


def predicted(model: torch.nn.Linear, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The load ahead, `(batch, 24)`, from the load of the past and the forecasts."""
    values: torch.Tensor = model(torch.cat([batch["past"], batch["temp"]], 1) / 10)
    return values * 10


def fit(train: ts.Windows) -> torch.nn.Linear:
    """A linear model of the training part, after a few steps."""
    model = torch.nn.Linear(48 + AHEAD, AHEAD)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for batch in ts.Loader(train, 128, shuffle=True, seed=0, steps=200):
        loss = (predicted(model, batch) - batch["target"]).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model


def errors(model: torch.nn.Linear, test: ts.Windows) -> tuple[float, float]:
    """The mean absolute error of the model, and of the load 24 hours before."""
    batch = test[:]
    with torch.no_grad():
        forecast = predicted(model, batch)
    of_model, of_day_before = (values - batch["target"] for values in (forecast, batch["past"][:, -AHEAD:]))
    return of_model.abs().mean().item(), of_day_before.abs().mean().item()


def save_picture(windows: ts.Windows, runs: pl.DataFrame, path: Path) -> None:
    """A window of the first site, and the runs around it: those that had arrived before t, and later ones."""
    k = len(windows) // 6
    t = windows.anchors([k])["time"].item() // HOUR
    in_hours = runs.filter(site=0).with_columns(pl.col("valid", "issued").dt.epoch("s") // 3600 - t)
    figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    for (issued,), run in in_hours.group_by("issued", maintain_order=True):
        colour = "#9cc3e0" if int(str(issued)) + LATE < 0 else "#c8641b"
        axes.plot(run["valid"], run["temp"], color=colour, lw=1)
    axes.plot(range(AHEAD), windows[k]["temp"], "o", color="#14507a", label="seen at t")
    axes.plot([], [], color="#9cc3e0", label="had arrived before t")
    axes.plot([], [], color="#c8641b", label="had not")
    axes.axvline(0, color="black")
    axes.set(xlim=(-12, 30), xlabel="hours from t on", ylabel="temperature, °C")
    axes.legend()
    figure.savefig(path, dpi=200)


if __name__ == "__main__":
    main()
