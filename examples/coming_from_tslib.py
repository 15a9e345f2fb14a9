"""The batches of Time-Series-Library (TSLib) for the ETT files, for its training loops as they are.

    python examples/coming_from_tslib.py ETTh1.csv

`data_provider` stands where TSLib's stands: the same borders (12, 4 and 4 months of 30 days), scaling with the rows of
the training part, `label_len`, and time features. In place of a data set and a loader it returns windows and a loader,
whose batches are the tuple `(batch_x, batch_y, batch_x_mark, batch_y_mark)`.
"""

import argparse
import time
from datetime import timedelta
from pathlib import Path

import polars as pl
import torch
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

Tuple4 = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

PARTS = {"train": 0, "val": 1, "test": 2}
MONTH = timedelta(days=30)
FEATURES = {
    0: ts.calendar("month", "day", "dayofweek", "hour"),
    1: ts.calendar("hour", "dayofweek", "day", "dayofyear", scaled=True),
}


def data_provider(
    path: Path,
    flag: str,
    *,
    seq_len: int = 96,
    label_len: int = 48,
    pred_len: int = 96,
    timeenc: int = 1,
    batch_size: int = 32,
    seed: int = 0,
) -> tuple[ts.Windows, ts.Loader]:
    """The windows of a part and a loader over them, as `data_provider(args, flag)` gives a data set and a loader.

    All variables are inputs and targets (`features="M"`). The numbers are read and scaled in float64 and cast per
    batch, as in TSLib.
    """
    first = pl.read_csv(path, columns=["date"], n_rows=1, try_parse_dates=True)["date"][0]
    names = [name for name in pl.read_csv(path, n_rows=0).columns if name != "date"]
    stash = ts.load(path, {"x": names, "mark": FEATURES[timeenc]}, time="date", dtype=torch.float64, progress=False)
    spans = {
        "x": ("x", -seq_len, 0),
        "y": ("x", -label_len, pred_len),
        "x_mark": ("mark", -seq_len, 0),
        "y_mark": ("mark", -label_len, pred_len),
    }
    cuts = [first + months * MONTH for months in (12, 16, 20)]
    # a part holds the windows whose `pred_len` rows lie in it; the rows of `label_len` may reach back, as in TSLib
    parts = ts.Windows(stash, spans=spans).split(*cuts)
    scaler = ts.Scaler.fit(parts[0], ["x"])
    loader = ts.Loader(
        parts[PARTS[flag]],
        batch_size,
        shuffle=flag != "test",
        seed=seed,
        transform=[scaler, as_tuple],
    )
    return parts[PARTS[flag]], loader


def as_tuple(batch: dict[str, torch.Tensor]) -> Tuple4:
    """A batch as TSLib's loops unpack it, in the dtype to which they cast it."""
    return batch["x"].float(), batch["y"].float(), batch["x_mark"].float(), batch["y_mark"].float()


class Items(Dataset[Tuple4]):
    """What TSLib does for every window, over arrays that are scaled already."""

    def __init__(self, windows: ts.Windows, scaled: torch.Tensor, label_len: int) -> None:
        self.x, self.mark = scaled, windows.stash["mark"].double()
        self.windows, self.label_len = windows, label_len
        # the windows of a part follow each other: there is one series, without a gap
        times = windows.stash.time
        assert times is not None
        self.first = int(torch.searchsorted(times, windows.anchors([0])["time"])) - windows.history

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, k: int) -> Tuple4:
        begin = self.first + k
        middle, end = begin + self.windows.history, begin + self.windows.length
        past, future = slice(begin, middle), slice(middle - self.label_len, end)
        return self.x[past], self.x[future], self.mark[past], self.mark[future]


def main() -> None:
    """Compare every window of the training part with a `Dataset` like TSLib's, and time both."""
    parser = argparse.ArgumentParser(description="TSLib's data_provider")
    parser.add_argument("path", type=Path, help="ETTh1.csv")
    path = parser.parse_args().path
    windows, loader = data_provider(path, "train")
    scaler = loader.transform[0]
    items = Items(windows, scaler({"x": windows.stash["x"].clone()})["x"], 48)
    ours = as_tuple(scaler(windows[:]))
    same = all(
        torch.equal(batch[k], item.float())
        for k in range(len(windows))
        for batch, item in zip(ours, items[k], strict=True)
    )
    print(f"{len(windows):,} windows of the training part, all equal: {same}")
    for name, one in (("DataLoader", DataLoader(items, 32, shuffle=True)), ("tensorstash", loader)):
        began = time.perf_counter()
        steps = sum(1 for *_, _mark in one)
        print(f"{name}: {steps} steps, {len(windows) / (time.perf_counter() - began):,.0f} windows/s")


if __name__ == "__main__":
    main()
