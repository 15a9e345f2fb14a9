"""The data provider of Time-Series-Library (TSLib) for its training loops as they are.

    python examples/coming_from_tslib.py ETTh1.csv

`data_provider(args, flag)` stands where TSLib's stands in `data_provider/data_factory.py`, for the ETT files and its
"custom" ones in forecasting: the same borders, scaling by the rows of the training part, `label_len`, time features and
order of a shuffled epoch. It returns a data set with `scale` and `inverse_transform`, and a loader whose batches are
the tuple `(batch_x, batch_y, batch_x_mark, batch_y_mark)`.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

import tensorstash as ts

Tuple4 = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

PARTS = {"train": 0, "val": 1, "test": 2}
HOURLY = ("hour", "dayofweek", "day", "dayofyear")
MINUTES, DAILY = ("minute", *HOURLY), HOURLY[1:]
# the fields with `embed="timeF"`, by `freq` without its number: "15min" is "min"
TIMES = {"h": HOURLY, "t": MINUTES, "min": MINUTES, "d": DAILY, "b": DAILY, "w": ("day", "week")}
TIMES |= {"s": ("second", *MINUTES), "m": ("month",)}


@dataclass(frozen=True)
class DataSet:
    """What TSLib's experiments ask a data set for."""

    windows: ts.Windows
    scaler: ts.Scaler
    scale: bool = True

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.windows)

    def inverse_transform(self, data: NDArray[Any]) -> NDArray[Any]:
        """`(rows, variables)` in the units of the file."""
        return self.scaler.inverse(torch.from_numpy(data)[None], "x")[0].numpy()


@dataclass(frozen=True)
class Order:
    """The order of a `DataLoader`, whose iterator takes a number from torch's generator for its workers first."""

    windows: ts.Windows
    shuffled: bool

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.windows)

    def __iter__(self) -> Iterator[int]:
        """The ids of an epoch."""
        torch.empty((), dtype=torch.int64).random_()
        return iter(RandomSampler(self.windows) if self.shuffled else SequentialSampler(self.windows))


def data_provider(args: Any, flag: str) -> tuple[DataSet, ts.Loader]:
    """The data set and the loader of a part, by TSLib's arguments."""
    path = Path(args.root_path, args.data_path)
    frame = pl.read_csv(path, try_parse_dates=True)
    names = [name for name in frame.columns if name != "date"]
    if args.data == "custom":
        names = [name for name in names if name != args.target] + [args.target]
    names = [args.target] if args.features == "S" else names
    frame = frame.with_columns(pl.col(names).cast(pl.Float64))  # OT of national_illness is an integer
    mark: Any = by_number(args.data)
    if args.embed == "timeF":
        unit = args.freq.lstrip("0123456789")
        if unit not in TIMES:
            raise ValueError(f"freq must be one of {', '.join(TIMES)}, after a number or alone, got {args.freq!r}.")
        mark = ts.calendar(*TIMES[unit], scaled=True)
    # numbers are read and scaled in float64 and cast per batch, as in TSLib
    stash = ts.load(frame, {"x": names, "mark": mark}, time="date", dtype=torch.float64, progress=False)
    spans = {
        "x": ("x", -args.seq_len, 0),
        "y": ("x", -args.label_len, args.pred_len),
        "x_mark": ("mark", -args.seq_len, 0),
        "y_mark": ("mark", -args.label_len, args.pred_len),
    }
    # a part holds the windows whose `pred_len` rows lie in it; the rows of `label_len` may reach back, as in TSLib
    cuts = [frame["date"][end] for end in borders(args.data, len(frame)) if end < len(frame)]
    parts = ts.Windows(stash, spans=spans, gaps="ignore").split(*cuts)
    scaler = ts.Scaler.fit(parts[0], ["x"])
    windows = scaler.transform(parts[PARTS[flag]])
    order = Order(windows, shuffled=flag != "test")
    loader = ts.Loader(windows, args.batch_size, order=order, transform=[as_tuple])
    return DataSet(windows, scaler), loader


def by_number(data: str) -> list[pl.Expr]:
    """The fields of the time as numbers; of the ETT files with a row every 15 minutes also the quarter of the hour."""
    time = pl.col("date").dt
    fields = [time.month(), time.day(), time.weekday() - 1, time.hour()]
    return [*fields, time.minute() // 15] if data.startswith("ETTm") else fields


def borders(data: str, rows: int) -> tuple[int, int, int]:
    """The rows at which the parts end: months of 30 days, or shares of all rows."""
    if data == "custom":
        return int(rows * 0.7), rows - int(rows * 0.2), rows
    month = 30 * 24 * (4 if data.startswith("ETTm") else 1)
    return 12 * month, 16 * month, 20 * month


def as_tuple(batch: dict[str, torch.Tensor]) -> Tuple4:
    """A batch as TSLib's loops unpack it, in the dtype to which they cast it."""
    return batch["x"].float(), batch["y"].float(), batch["x_mark"].float(), batch["y_mark"].float()


class Items(Dataset[tuple[NDArray[Any], ...]]):
    """What TSLib does for every window, over arrays that are scaled already."""

    def __init__(self, data_set: DataSet, label_len: int) -> None:
        windows, stash = data_set.windows, data_set.windows.stash
        self.x = stash["x"].numpy()
        self.mark = stash["mark"].double().numpy()
        self.windows, self.label_len = windows, label_len
        # the windows of a part follow each other: there is one series, without a gap
        assert stash.time is not None
        self.first = int(np.searchsorted(stash.time.numpy(), windows.anchors([0])["time"].numpy()[0])) - windows.history

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, k: int) -> tuple[NDArray[Any], ...]:
        begin = self.first + k
        middle, end = begin + self.windows.history, begin + self.windows.length
        past, future = slice(begin, middle), slice(middle - self.label_len, end)
        return self.x[past], self.x[future], self.mark[past], self.mark[future]


def main() -> None:
    """Compare every batch of an epoch with those of a `DataLoader` over a `Dataset` like TSLib's, and time both."""
    parser = argparse.ArgumentParser(description="TSLib's data_provider")
    parser.add_argument("path", type=Path, help="ETTh1.csv")
    path = parser.parse_args().path
    args = argparse.Namespace(
        **{"data": "ETTh1", "root_path": path.parent, "data_path": path.name, "features": "M", "target": "OT"},
        **{"embed": "timeF", "freq": "h", "seq_len": 96, "label_len": 48, "pred_len": 96, "batch_size": 32},
    )
    data_set, loader = data_provider(args, "train")
    theirs = DataLoader(Items(data_set, args.label_len), args.batch_size, shuffle=True)
    epochs = []
    for batches in (loader, theirs):
        torch.manual_seed(0)
        epochs.append([*batches])
    same = all(
        tensor.equal(other.float()) for batch, items in zip(*epochs, strict=True) for tensor, other in zip(batch, items)
    )
    print(f"{len(data_set):,} windows of the training part, all equal and in one order: {same}")
    for name, batches in (("DataLoader", theirs), ("tensorstash", loader)):
        began = time.perf_counter()
        steps = sum(1 for _ in batches)
        print(f"{name}: {steps} steps, {len(data_set) / (time.perf_counter() - began):,.0f} windows/s")


if __name__ == "__main__":
    main()
