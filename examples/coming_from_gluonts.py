"""Files of GluonTS and of Chronos as stashes, and the windows of GluonTS' `InstanceSplitter` beside ours.

    python examples/coming_from_gluonts.py

Needs `pip install gluonts`. Each row of such a file is a series, and GluonTS reads the same file with its
`FileDataset`.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import tensorstash as ts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like a faster JSON
    from gluonts.dataset.common import FileDataset
    from gluonts.transform import InstanceSampler, InstanceSplitter

PAST, FUTURE = 48, 12


class EverySplit(InstanceSampler):  # type: ignore[misc, unused-ignore]  # the package may be missing
    """All time points of a series, in place of a random choice of them."""

    def __call__(self, series: "np.ndarray[Any, np.dtype[np.float32]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The splits of a series `(..., time)`: at each, there is a whole past and a whole future."""
        first, last = self._get_bounds(series)
        return np.arange(first, last + 1)


def write_gluonts(path: Path, series: int = 20) -> None:
    """Hourly series of different lengths, with two covariates that are known ahead and two static features."""
    random = np.random.default_rng(0)
    lengths = [300 + 50 * k for k in range(series)]
    rows = {
        "item_id": [f"T{k:02}" for k in range(series)],
        "start": [f"2024-01-{1 + k:02} 00:00" for k in range(series)],
        "freq": series * ["h"],
        "target": [random.standard_normal(length).cumsum() for length in lengths],
        "feat_dynamic_real": [random.standard_normal((2, length)).tolist() for length in lengths],
        "feat_static_cat": [[k % 3] for k in range(series)],
        "feat_static_real": [[k / 7] for k in range(series)],
    }
    pl.DataFrame(rows).write_parquet(path)


def write_chronos(source: Path, path: Path) -> None:
    """The same series as `id`, `timestamp` and `target`, in Arrow."""
    rows = pl.read_parquet(source)
    hours = pl.datetime_ranges(
        pl.col("start").str.to_datetime(time_unit="us"),
        pl.col("start").str.to_datetime(time_unit="us") + pl.duration(hours=pl.col("target").list.len() - 1),
        "1h",
    )
    rows.select(id="item_id", timestamp=hours, target=pl.col("target").cast(pl.List(pl.Float32))).write_ipc(path)


def from_gluonts(path: Path) -> ts.Stash:
    """Each value gets a row of its own, and its time, by polars; the two variates are packed."""
    frame = (
        pl.scan_parquet(path)
        .with_columns(
            pl.col("start").str.to_datetime(),
            step=pl.int_ranges(pl.col("target").list.len()),
            known0=pl.col("feat_dynamic_real").list.get(0),
            known1=pl.col("feat_dynamic_real").list.get(1),
        )
        .explode("step", "target", "known0", "known1")
        .with_columns(time=pl.col("start").dt.offset_by(pl.format("{}{}", "step", "freq")))
    )
    return ts.load(
        frame,
        {"target": "target", "known": ["known0", "known1"]},
        entity="item_id",
        time="time",
        static={"cat": "feat_static_cat", "real": "feat_static_real"},
        dtype=torch.float32,
        progress=False,
    )


def from_chronos(path: Path) -> ts.Stash:
    """The times are a list of their own."""
    frame = pl.scan_ipc(path).explode("timestamp", "target")
    return ts.load(frame, ["target"], entity="id", time="timestamp", progress=False)


def instances(path: Path) -> Iterator[dict[str, Any]]:
    """Every window of GluonTS, a dict for each, series after series."""
    splitter = InstanceSplitter(
        target_field="target",
        is_pad_field="is_pad",
        start_field="start",
        forecast_start_field="forecast_start",
        instance_sampler=EverySplit(min_past=PAST, min_future=FUTURE),
        past_length=PAST,
        future_length=FUTURE,
        time_series_fields=["feat_dynamic_real"],
    )
    yield from splitter.apply(FileDataset(path, freq="h"), is_train=True)


def differing(windows: ts.Windows, path: Path) -> int:
    """How many windows of GluonTS differ from ours in any value, in their series, or in the time of their forecast."""
    ours, wrong, k = windows[:], 0, 0
    anchors = windows.anchors(torch.arange(len(windows)))
    names, times = windows.stash.entities, anchors["time"]
    for k, theirs in enumerate(instances(path), 1):
        batch = {name: tensor[k - 1].numpy() for name, tensor in ours.items()}
        same = [
            np.array_equal(batch["past_target"], theirs["past_target"]),
            np.array_equal(batch["future_target"], theirs["future_target"]),
            np.array_equal(batch["known"][:PAST], theirs["past_feat_dynamic_real"]),
            np.array_equal(batch["known"][PAST:], theirs["future_feat_dynamic_real"]),
            np.array_equal(batch["cat"], theirs["feat_static_cat"]),
            np.array_equal(batch["real"], theirs["feat_static_real"]),
            names[int(anchors["entity"][k - 1])] == theirs["item_id"],
            theirs["forecast_start"].start_time.value // 1000 == int(times[k - 1]),
        ]
        wrong += not all(same)
    return wrong + abs(len(windows) - k)


def main() -> None:
    """Compare every window, time both, and load a file of Chronos with the same series."""
    with tempfile.TemporaryDirectory() as folder:
        path, chronos = Path(folder, "train.parquet"), Path(folder, "chronos.arrow")
        write_gluonts(path)
        stash = from_gluonts(path)
        spans = {
            "past_target": ("target", -PAST, 0),
            "future_target": ("target", 0, FUTURE),
            "known": ("known", -PAST, FUTURE),
        }
        windows = ts.Windows(stash, spans=spans)
        sys.stdout.write(f"{len(windows):,} windows, {differing(windows, path)} differ from those of GluonTS\n")

        began = time.perf_counter()
        count = sum(1 for _ in instances(path))
        sys.stdout.write(f"GluonTS: {count / (time.perf_counter() - began):,.0f} windows/s\n")
        began = time.perf_counter()
        count = sum(len(batch["known"]) for batch in ts.Loader(windows, batch_size=256, shuffle=True))
        sys.stdout.write(f"tensorstash: {count / (time.perf_counter() - began):,.0f} windows/s\n")

        write_chronos(path, chronos)
        other = from_chronos(chronos)
        times = [one.time for one in (stash, other) if one.time is not None]
        same = all(
            torch.equal(*pair) for pair in (times, (other.offsets, stash.offsets), (other["target"], stash["target"]))
        )
        sys.stdout.write(f"Chronos: {other.rows:,} rows, the same: {same}\n")


if __name__ == "__main__":
    main()
