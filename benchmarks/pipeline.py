"""A training pipeline in several ways: from rows preprocessed one by one and read from disk to resident columns.

    python benchmarks/pipeline.py            # about four minutes, 0.5 GB on disk
    python benchmarks/pipeline.py --quick    # small, and all but one way in one process, to see that it runs

A Parquet file of 46 float32 columns, of which a model uses 6. Every way makes the same batches of scaled windows in the
same order, and trains the same model from the same start: the losses of all steps are compared. The ways:

row by row    every row is a dict, as in `datasets.map`; all 46 columns are scaled and written as an Arrow file; it is
              mapped, windows are sliced from it one by one, and a DataLoader with 2 workers makes tensors of them
batched       the same done better: the 6 columns, whole record batches at a time, and all windows of a batch at once
datasets ...  both ways of preprocessing with `map` of the library `datasets`, if it is installed, whose result is
              mapped too; windows are slices in its torch format, made one by one
tensorstash   `ts.load` of the 6 columns, `ts.Scaler` fitted on a sample, `ts.Loader`

Only the last way fits its scaler. The others are given its constants, and their times do not include fitting. Each way
runs in a process of its own, round by round; imports come before the clock. The page cache is warm.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import record
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import tensorstash as ts

COLUMNS = [f"c{k:02}" for k in range(46)]
USED = COLUMNS[4:40:6]  # 6
TARGET = USED[0]
HISTORY, HORIZON, STRIDE = 96, 24, 4
LENGTH = HISTORY + HORIZON
BATCH = 256
EPOCHS = 2
ROUNDS = 3
WORKERS = 2
CHUNK = 10_000  # rows of a record batch

Batch = dict[str, torch.Tensor]  # past (batch, HISTORY, 6) and target (batch, HORIZON), scaled
Ids = NDArray[np.int64]
Epoch = Callable[[int], Iterable[Batch]]  # the batches of an epoch, by its number


@dataclass(frozen=True)
class Data:
    """Where the files are, and how many series of how many steps are in them."""

    folder: Path
    series: int
    steps: int

    @property
    def source(self) -> Path:
        return self.folder / "data.parquet"

    @property
    def windows(self) -> int:
        return self.series * self.each

    @property
    def each(self) -> int:
        return (self.steps - LENGTH) // STRIDE + 1

    def starts(self, ids: Ids) -> Ids:
        """The first rows of windows."""
        return ids // self.each * self.steps + ids % self.each * STRIDE

    def constants(self) -> dict[str, tuple[float, float]]:
        """Centre and scale of every column; those of the used ones are what the stash is fitted to."""
        found: dict[str, tuple[float, float]] = json.loads((self.folder / "constants.json").read_text())
        return found


def write_data(data: Data) -> None:
    """Random walks with a daily wave, each column on a level and scale of its own; and the constants to scale with."""
    rng = np.random.default_rng(0)
    rows = data.series * data.steps
    wave = np.sin(np.arange(rows) * 2 * np.pi / 24)
    columns: dict[str, Any] = {"series": np.repeat(np.arange(data.series, dtype=np.int32), data.steps)}
    for k, name in enumerate(COLUMNS):
        noise = rng.normal(size=(data.series, data.steps)).cumsum(1).ravel()
        columns[name] = ((noise * 0.1 + wave) * (k + 1) + 10 * k).astype(np.float32)
    pq.write_table(pa.table(columns), data.source, row_group_size=1 << 16)
    scaler = ts.Scaler.fit(ts.Windows(load(data, COLUMNS), LENGTH, stride=STRIDE), ["x"], sample=sample(data))
    constants = zip(scaler.center["x"][0].tolist(), scaler.scale["x"][0].tolist())
    (data.folder / "constants.json").write_text(json.dumps(dict(zip(COLUMNS, constants))))


def load(data: Data, columns: list[str]) -> ts.Stash:
    return ts.load(data.source, {"x": columns}, entity="series", progress=False)


def sample(data: Data) -> int:
    return min(100_000, data.series * data.steps // 2)


def order(data: Data) -> ts.Sampler:
    return ts.Sampler(data.windows, BATCH, shuffle=True, seed=0, tail="drop")


# Before: preprocessing writes a file, and batches are read from it


def scaled_row(row: dict[str, Any], constants: dict[str, tuple[float, float]]) -> dict[str, Any]:
    return {name: (row[name] - center) / scale for name, (center, scale) in constants.items()}


def preprocess_rows(data: Data) -> None:
    """All columns, a dict for each row."""
    constants = data.constants()
    schema = pa.schema([(name, pa.float32()) for name in COLUMNS])
    with pq.ParquetFile(data.source) as source, pa.ipc.new_file(data.folder / "rows.arrow", schema) as file:
        for batch in source.iter_batches(CHUNK):
            rows = [scaled_row(row, constants) for row in batch.to_pylist()]
            file.write_batch(pa.RecordBatch.from_pylist(rows, schema))


def preprocess_batches(data: Data) -> None:
    """The used columns, whole record batches."""
    constants = data.constants()
    schema = pa.schema([(name, pa.float32()) for name in USED])
    with pq.ParquetFile(data.source) as source, pa.ipc.new_file(data.folder / "batches.arrow", schema) as file:
        for batch in source.iter_batches(CHUNK, columns=USED):
            columns = [(batch[name].to_numpy() - constants[name][0]) / constants[name][1] for name in USED]
            file.write_batch(pa.record_batch([column.astype(np.float32) for column in columns], schema))


class Mapped:
    """An Arrow file that each process maps when it first reads: a table itself would travel to workers as a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def table(self) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self.path))).read_all()


class Slices(Dataset[Batch]):
    """A window per item: a slice of the mapped table, each column made a tensor."""

    def __init__(self, data: Data) -> None:
        self.data, self.file = data, Mapped(data.folder / "rows.arrow")

    def __len__(self) -> int:
        return self.data.windows

    def __getitem__(self, index: Any) -> Batch:
        found = self.file.table.slice(int(self.data.starts(index)), LENGTH)
        return split(torch.stack([torch.tensor(found[name].to_numpy()) for name in USED], 1))


class Takes(Dataset[Batch]):
    """A batch per item: all rows of all its windows at once."""

    def __init__(self, data: Data) -> None:
        self.data, self.file = data, Mapped(data.folder / "batches.arrow")

    def __getitem__(self, ids: Ids) -> Batch:
        rows = self.data.starts(ids)[:, None] + np.arange(LENGTH)
        found = self.file.table.take(pa.array(rows.ravel()))
        columns = [found[name].to_numpy().reshape(rows.shape) for name in USED]
        return split(torch.from_numpy(np.stack(columns, 2)))


def split(values: torch.Tensor) -> Batch:
    """Past and target of scaled windows `(..., LENGTH, 6)`."""
    return {"past": values[..., :HISTORY, :], "target": values[..., HISTORY:, 0]}


def one_by_one(dataset: Dataset[Batch], data: Data) -> Epoch:
    """Epochs of a data set with a window per item."""
    ids: Any = order(data)
    return by_epoch(ids, DataLoader(dataset, batch_sampler=ids, num_workers=WORKERS, persistent_workers=True))


def read_slices(data: Data, _: Any) -> Epoch:
    return one_by_one(Slices(data), data)


def read_takes(data: Data, _: Any) -> Epoch:
    ids = order(data)
    loader = DataLoader(Takes(data), sampler=ids, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    return by_epoch(ids, loader)


def by_epoch(sampler: Any, batches: Iterable[Batch]) -> Epoch:
    def epoch(number: int) -> Iterable[Batch]:
        sampler.set_epoch(number)
        return batches

    return epoch


# The same with `datasets`


def map_rows(data: Data) -> Any:
    constants = data.constants()
    rows = opened(data)
    return rows.map(lambda row: scaled_row(row, constants), features=rows.features)


def map_batches(data: Data) -> Any:
    constants = data.constants()

    def scaled(batch: dict[str, Any]) -> dict[str, Any]:
        return {name: (batch[name] - constants[name][0]) / constants[name][1] for name in USED}

    used = opened(data).select_columns(USED).with_format("numpy")
    return used.map(scaled, batched=True, batch_size=CHUNK, features=used.features)


def opened(data: Data) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.Dataset.from_parquet(str(data.source), cache_dir=str(data.folder / "cache"), columns=COLUMNS)


class Views(Dataset[Batch]):
    """A window per item: a slice of the data set in its torch format."""

    def __init__(self, data: Data, dataset: Any) -> None:
        self.data, self.dataset = data, dataset.select_columns(USED).with_format("torch")

    def __len__(self) -> int:
        return self.data.windows

    def __getitem__(self, index: Any) -> Batch:
        start = int(self.data.starts(index))
        found = self.dataset[start : start + LENGTH]
        return split(torch.stack([found[name] for name in USED], 1))


def read_views(data: Data, dataset: Any) -> Epoch:
    return one_by_one(Views(data, dataset), data)


# After


def load_and_fit(data: Data) -> Any:
    stash = ts.load(data.source, {"x": USED, "y": TARGET}, entity="series", progress=False)
    spans = {"past": ("x", -HISTORY, 0), "target": ("y", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, stride=STRIDE)
    return windows, ts.Scaler.fit(windows, ["x", "y"], sample=sample(data))


def read_stash(_: Data, staged: Any) -> Epoch:
    windows, scaler = staged
    loader = ts.Loader(windows, BATCH, shuffle=True, seed=0, tail="drop", transform=[scaler])
    return by_epoch(loader.sampler, loader)


@dataclass(frozen=True)
class Way:
    """What is done once, and what then gives the batches of an epoch; `needs` is a module."""

    preprocess: Callable[[Data], Any]
    read: Callable[[Data, Any], Epoch]
    note: str
    needs: str = "torch"


WAYS = {
    "row by row": Way(preprocess_rows, read_slices, "a dict per row, all columns; a slice per window, 2 workers"),
    "datasets, row by row": Way(map_rows, read_views, "map, all columns; a slice per window, 2 workers", "datasets"),
    "datasets, batched": Way(map_batches, read_views, "batched map, used columns; a slice per window", "datasets"),
    "batched": Way(preprocess_batches, read_takes, "used columns; one take per batch, 2 workers"),
    "tensorstash": Way(load_and_fit, read_stash, "used columns, resident; scaled per batch, no workers"),
}


# One way, in a process of its own


def run(data: Data, way: Way) -> dict[str, Any]:
    """Preprocess and train; the times are those of the last epoch."""
    importlib.import_module(way.needs)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(HISTORY * len(USED), 512), torch.nn.ReLU(), torch.nn.Linear(512, HORIZON)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    began = time.perf_counter()
    staged = way.preprocess(data)
    preprocessed = time.perf_counter() - began
    epoch = way.read(data, staged)
    firsts, losses = [], []
    for number in range(EPOCHS):
        waited, started = 0.0, time.perf_counter()
        asked = started
        for batch in epoch(number):
            firsts.append(time.perf_counter() - began)
            waited += time.perf_counter() - asked
            loss = torch.nn.functional.mse_loss(model(batch["past"]), batch["target"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            asked = time.perf_counter()
        waited += time.perf_counter() - asked
        took = time.perf_counter() - started
    return {
        "preprocess_s": preprocessed,
        "first_batch_s": firsts[0],
        "epoch_s": took,
        "waiting": waited / took,
        "losses": losses,
    }


def fresh(name: str, data: Data, own_process: bool) -> dict[str, Any]:
    """A way in a new folder; what it has written is there for no other."""
    with tempfile.TemporaryDirectory(dir=data.folder) as folder:
        for file in ("data.parquet", "constants.json"):
            (Path(folder) / file).symlink_to(data.folder / file)
        print(f"    {name} ...", flush=True)
        if not own_process:
            return run(Data(Path(folder), data.series, data.steps), WAYS[name])
        asked = json.dumps([name, folder, data.series, data.steps])
        done = subprocess.run([sys.executable, __file__, "--way", asked], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(data: Data, quick: bool) -> list[record.Row]:
    """All ways by turns, and a row for each: medians over the rounds, ratios taken round by round."""
    names = [name for name, way in WAYS.items() if importlib.util.find_spec(way.needs)]
    for name in WAYS.keys() - set(names):
        print(f"    {name} left out: {WAYS[name].needs} is not installed")
    found = [
        {name: fresh(name, data, not quick or name == "tensorstash") for name in names}
        for _ in range(1 if quick else ROUNDS)
    ]
    expected = found[0]["tensorstash"]["losses"]
    assert len(expected) == EPOCHS * len(order(data))
    for results in found:
        for name in names:
            np.testing.assert_allclose(results[name].pop("losses"), expected, rtol=1e-3, err_msg=name)
    return [row(name, found) for name in names]


def row(name: str, found: list[dict[str, dict[str, Any]]]) -> record.Row:
    measured: record.Row = {"name": name, "note": WAYS[name].note}
    for key in found[0][name]:
        measured[key] = statistics.median(results[name][key] for results in found)
    for key in ("preprocess_s", "first_batch_s", "epoch_s"):
        ratios = [results[name][key] / results["tensorstash"][key] for results in found]
        measured[key.replace("_s", "_ratio")] = statistics.median(ratios)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 short series and one round, to see that it runs")
    parser.add_argument("--way", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        name, place, series, steps = options.way
        print(json.dumps(run(Data(Path(place), series, steps), WAYS[name])))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder), *((2, 1_500) if options.quick else (10, 6_000)))
        write_data(data)
        rows = compare(data, options.quick)
    print("times tensorstash, then seconds; losses of all steps agree")
    print(f"    {'':22}{'preprocessing':>18}{'first batch':>18}{'epoch':>18}{'waiting':>10}")
    for one in rows:
        pairs = [(one[f"{key}_ratio"], one[f"{key}_s"]) for key in ("preprocess", "first_batch", "epoch")]
        cells = "".join(f"{ratio:8.1f}  {spent:6.2f} s" for ratio, spent in pairs)
        print(f"    {one['name']:22}{cells}{one['waiting']:10.0%}")
    libraries = ("tensorstash", "torch", "numpy", "pyarrow", "datasets")
    print(record.save("pipeline", rows, libraries, quick=options.quick))


if __name__ == "__main__":
    main()
