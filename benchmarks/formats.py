"""The same windows from different file formats: windows/s, time to the first batch, bytes on disk.

    python benchmarks/formats.py            # about five minutes, 1.5 GB on disk and 0.3 GB in /dev/shm
    python benchmarks/formats.py --quick    # small, and without processes of their own, to see that it runs

40 series of 30,000 steps, 8 float32 columns, 49,840 windows of 120 steps that begin 24 steps apart, batches of 1,024.
All but the tar stream give the same windows in the same order, a whole batch per call of the `DataLoader`
(`batch_size=None`), which is the fastest that it has; each format is read in the fastest way that we found for it. The
page cache is warm: the files have just been written. Of every case the first 8 batches are compared with the data,
value by value, before the clock runs. A case has a process of its own, with one thread of torch (pyarrow takes as many
as it likes), in which it takes turns with a stash of the same data and order; the ratio to that is the median over the
rounds. The time to the first batch begins with the files and ends with the batch; imports come before.
"""

import argparse
import importlib.util
import io
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import record
import torch
from layouts import BUFFER, COLUMNS, FORMATS, GROUP, LENGTH, SHARDS, Batch, Data, Ids, Read, load_packed, unpack
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import tensorstash as ts

BATCH = 1024
CHECKED = 8  # batches
ROUNDS = 5


# Batches of a format, in this process or in workers


def order(data: Data, shuffle: bool) -> Iterator[Ids]:
    """The ids of every batch, epoch after epoch."""
    sampler = ts.Sampler(data.windows, BATCH, shuffle=shuffle, seed=0, tail="drop")
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from sampler


class Batches(Dataset[Batch]):
    """A batch per item; what reads it is opened in the process that reads, since open files survive no fork."""

    def __init__(self, name: str, data: Data, staged: Any) -> None:
        self.name, self.data, self.staged = name, data, staged
        self.read: Read | None = None

    def __getitem__(self, ids: Ids) -> Batch:
        if self.read is None:
            opened = FORMATS[self.name].read
            assert opened is not None
            self.read = opened(self.data, self.staged)
        return self.read(ids)


class Order:
    """`order` as the sampler of a DataLoader."""

    def __init__(self, data: Data, shuffle: bool) -> None:
        self.data, self.shuffle = data, shuffle

    def __iter__(self) -> Iterator[Ids]:
        return order(self.data, self.shuffle)


class Stream(IterableDataset[Batch]):
    """Windows from tar files one after the other, through a buffer that shuffles; batches carry the `ids`."""

    def __init__(self, data: Data, shuffle: bool) -> None:
        self.data, self.shuffle = data, shuffle

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        rng = np.random.default_rng(first)
        while True:
            shards = np.arange(first, SHARDS, step)
            windows = self.windows(rng.permutation(shards) if self.shuffle else shards)
            windows = buffered(windows, rng) if self.shuffle else windows
            while len(some := [*itertools.islice(windows, BATCH)]) == BATCH:
                ids, values = zip(*some)
                yield {"x": torch.from_numpy(np.stack(values)), "ids": np.array(ids)}

    def windows(self, shards: Ids) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for shard in shards.tolist():
            with tarfile.open(self.data.folder / "shards" / f"{shard}.tar", "r|") as file:
                for entry in file:
                    content = file.extractfile(entry)
                    assert content is not None
                    yield int(entry.name.split(".")[0]), np.load(io.BytesIO(content.read()))


def buffered(windows: Iterator[Any], rng: np.random.Generator) -> Iterator[Any]:
    """Each window takes the place of a random one of those that wait."""
    waiting = [*itertools.islice(windows, BUFFER)]
    for window in windows:
        k = int(rng.integers(len(waiting)))
        yield waiting[k]
        waiting[k] = window
    rng.shuffle(waiting)
    yield from waiting


def batches(name: str, data: Data, shuffle: bool, workers: int) -> Iterator[Batch]:
    """Batches without end, from the files on."""
    form = FORMATS[name]
    staged = form.stage(data)
    try:
        if isinstance(staged, ts.Windows) and not workers:
            yield from epochs(staged, shuffle)
        elif form.read is None:
            yield from DataLoader(Stream(data, shuffle), batch_size=None, num_workers=workers)
        else:
            own = Batches(name, data, staged)
            yield from DataLoader(own, sampler=Order(data, shuffle), batch_size=None, num_workers=workers)
    finally:
        if form.stage is unpack:
            shutil.rmtree(staged)


def epochs(windows: ts.Windows, shuffle: bool) -> Iterator[Batch]:
    loader = ts.Loader(windows, BATCH, shuffle=shuffle, seed=0, tail="drop")
    while True:
        yield from loader


# One case, in a process of its own


def case(name: str, data: Data, shuffle: bool, workers: int, quick: bool) -> record.Row:
    """Check the first batches, then time rounds of this format and of a stash by turns."""
    torch.set_num_threads(1)
    if FORMATS[name].needs == "h5py":
        importlib.import_module("h5py")
    began = time.perf_counter()
    running = batches(name, data, shuffle, workers)
    first = next(running)
    first_batch = time.perf_counter() - began
    for ids, batch in zip(order(data, shuffle), itertools.chain([first], itertools.islice(running, CHECKED - 1))):
        check(data, batch, np.asarray(batch.pop("ids", ids)))
    reference = epochs(load_packed(data), shuffle)
    seconds(reference, CHECKED)
    steps, theirs = (3, 3) if quick else (paced(running, 0.4), paced(reference, 0.1))
    rounds = []
    for _ in range(1 if quick else ROUNDS):
        ours = seconds(reference, theirs) / theirs
        seconds(running, 2 * workers)  # what workers have read ahead meanwhile
        rounds.append((seconds(running, steps) / steps, ours))
    running.close()  # type: ignore[attr-defined]
    spent = statistics.median(one for one, _ in rounds)
    return {
        "name": name,
        "note": FORMATS[name].note,
        "shuffle": shuffle,
        "workers": workers,
        "windows_per_s": BATCH / spent,
        "gb_per_s": BATCH * LENGTH * COLUMNS * 4 / spent / 1e9,
        "ratio": statistics.median(ours / one for one, ours in rounds),
        "first_batch_s": first_batch,
    }


def alone(name: str, data: Data, shuffle: bool, workers: int, quick: bool) -> record.Row:
    """A case in a process of its own."""
    asked = json.dumps([name, str(data.folder), data.series, data.steps, shuffle, workers, quick])
    done = subprocess.run([sys.executable, __file__, "--case", asked], stdout=subprocess.PIPE, check=True)
    found: record.Row = json.loads(done.stdout)
    return found


def check(data: Data, batch: Batch, ids: Ids) -> None:
    """Every value of every window is that of its row and column."""
    assert len(ids) == BATCH
    rows = torch.from_numpy(data.starts(ids))[:, None] + torch.arange(LENGTH)
    for k in range(COLUMNS):
        found = batch["x"][..., k] if "x" in batch else batch[f"c{k}"]
        assert torch.equal(found, (rows * COLUMNS + k).float()), f"Windows have other values in column {k}."


def seconds(running: Iterator[Batch], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        next(running)
    return time.perf_counter() - began


def paced(running: Iterator[Batch], wanted: float) -> int:
    """How many steps take so many seconds."""
    return max(3, int(wanted / (seconds(running, 3) / 3)))


def on_disk(path: Path) -> float:
    """MB that the file system has given to a file or folder."""
    files = [path] if path.is_file() else [*path.iterdir()]
    return sum(file.stat().st_blocks * 512 for file in files) / 1e6


def run(data: Data, quick: bool) -> Iterator[record.Row]:
    for k, (name, form) in enumerate(FORMATS.items()):
        if importlib.util.find_spec(form.needs) is None:
            print(f"    {name:18} left out: {form.needs} is not installed")
            continue
        began = time.perf_counter()
        form.write(data)
        made = {"made_s": time.perf_counter() - began, "disk_mb": on_disk(data.folder / form.file)}
        cases = [*itertools.product((True, False), (0, 2))]
        for shuffle, workers in cases[k % 2 : 2 : 2] if quick else cases:
            asked = (name, data, shuffle, workers, quick)
            row = (case(*asked) if quick and k else alone(*asked)) | made
            print(
                f"    {name:18} {'shuffled' if shuffle else 'in order'}  {workers} workers  "
                f"{row['ratio']:6.3f} of the stash  {row['windows_per_s']:11,.0f} windows/s  "
                f"first batch {row['first_batch_s']:6.2f} s  {row['disk_mb']:6,.0f} MB on disk",
                flush=True,
            )
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 series, one case of each format, to see that it runs")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, place, series, steps, shuffle, workers, quick = options.case
        print(json.dumps(case(name, Data(Path(place), series, steps), shuffle, workers, quick)))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder), 4 if options.quick else 40, 30_000)
        pq.write_table(data.table(), data.folder / "data.parquet", row_group_size=GROUP)
        rows = [*run(data, options.quick)]
    libraries = ("tensorstash", "torch", "numpy", "pyarrow", "h5py")
    print(record.save("formats", rows, libraries, quick=options.quick))


if __name__ == "__main__":
    main()
