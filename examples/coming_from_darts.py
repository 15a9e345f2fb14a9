"""`TimeSeries` of darts as a stash, and the windows of its training data set beside ours.

    python examples/coming_from_darts.py

Needs `pip install darts`. A list of series becomes one frame with an entity column, without a loop over values.
"""

import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import polars as pl
import torch
from darts import TimeSeries
from darts.utils.data import SequentialTorchTrainingDataset

import tensorstash as ts

INPUT, OUTPUT = 48, 12


def stash_of(series: Sequence[TimeSeries], names: Sequence[str]) -> ts.Stash:
    """The series under their names, each with the same components, as one pack `x`."""
    components = [*series[0].components]
    frame = pl.concat(
        pl.DataFrame(one.values(copy=False), components).with_columns(
            pl.lit(name).alias("series"), pl.Series("time", one.time_index.to_numpy())
        )
        for one, name in zip(series, names, strict=True)
    )
    return ts.load(frame, {"x": components}, entity="series", time="time")


def some_series() -> list[TimeSeries]:
    """Series of different lengths, each of two components."""
    random = np.random.default_rng(0)
    made = []
    for k in range(20):
        times = pd.date_range("2024-01-01", periods=500 + 50 * k, freq="h")
        values = random.standard_normal((len(times), 2)).cumsum(0).astype(np.float32)
        made.append(TimeSeries.from_times_and_values(times, values, columns=["load", "wind"]))
    return made


def main() -> None:
    """Compare every window of darts with ours, and time both."""
    series = some_series()
    windows = ts.Windows(
        stash_of(series, [f"series {k:02d}" for k in range(len(series))]),
        spans={"past": ("x", -INPUT, 0), "future": ("x", 0, OUTPUT)},
    )
    theirs = SequentialTorchTrainingDataset(series, input_chunk_length=INPUT, output_chunk_length=OUTPUT)
    ours = {
        (past.numpy().tobytes(), future.numpy().tobytes()) for past, future in zip(*windows[:].values(), strict=True)
    }
    began = time.perf_counter()
    samples = [theirs[k] for k in range(len(theirs))]
    seconds = time.perf_counter() - began
    seen = {(sample.past_target.tobytes(), sample.future_target.tobytes()) for sample in samples}
    sys.stdout.write(f"{len(windows):,} windows; those of darts are the same: {seen == ours}\n")
    sys.stdout.write(f"darts: {len(samples) / seconds:,.0f} windows/s\n")
    began = time.perf_counter()
    count = sum(len(batch["past"]) for batch in ts.Loader(windows, batch_size=256, shuffle=True))
    sys.stdout.write(f"tensorstash: {count / (time.perf_counter() - began):,.0f} windows/s\n")
    assert isinstance(windows[0]["past"], torch.Tensor)


if __name__ == "__main__":
    main()
