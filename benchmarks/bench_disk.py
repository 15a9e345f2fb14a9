"""Training windows from a file that is not in memory: `ts.open` beside a NumPy memory map and Hugging Face `datasets`.

    python benchmarks/bench_disk.py                          # about five minutes, 1.5 GB in the temporary directory
    python benchmarks/bench_disk.py --rows 160_000_000       # 15 GB; --folder says where
    python benchmarks/bench_disk.py --quick                  # small, to see that it runs

Each contestant runs in a fresh process, and before each turn the system is told to drop the files from the page cache
(`posix_fadvise`), so every page comes from the disk once: that is what a file larger than memory costs. The folder has
to lie on a disk, so not in `/dev/shm`. Contestants yield the same random windows, or blocks of consecutive ones, as
`(batch, window)` of each column, and take turns. Values encode their row: the first batches of each turn are compared,
and then the clock starts.

A loader asks for the pages of the next steps while it reads from the disk; "not ahead" is the same without that. The
bytes are what the process read from the disk in a step, where the system counts it. `datasets` takes a tenth of
the steps, which are slow. To open its file reads all of it, because the heads of its pieces lie everywhere in it; that
is not in the times.
"""

import argparse
import importlib.util
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from numpy.typing import NDArray
from timing import Rounds

import tensorstash as ts
from tensorstash.batches import read_ahead

COLUMNS = 8
WINDOW = 64
BATCH = 256
CHECKED = 3  # steps
MODULUS = 1 << 20  # of the values, which float32 holds exactly

Ids = NDArray[np.int64]
Order = dict[str, Any]  # the arguments of a loader that choose its order
Batches = Iterator[tuple[Ids, list[torch.Tensor]]]  # the first rows of windows, and the columns


def make(folder: Path, rows: int) -> None:
    """The same columns as a stash, as raw files, and as a data set."""
    data = {f"c{k}": (np.arange(rows) % MODULUS + k).astype(np.float32) for k in range(COLUMNS)}
    ts.load(data, file=folder / "x.safetensors", progress=False)
    for name, values in data.items():
        values.tofile(folder / f"{name}.raw")
    if importlib.util.find_spec("datasets"):
        import datasets

        datasets.disable_progress_bars()
        datasets.Dataset.from_dict(data).save_to_disk(str(folder / "datasets"))


def orders(order: Order, rows: int) -> Iterator[Ids]:
    yield from map(np.array, ts.Sampler(rows - WINDOW + 1, BATCH, **order, seed=1))


def stash(folder: Path, order: Order, _: int) -> Batches:
    windows = ts.Windows(ts.open(folder / "x.safetensors"), WINDOW)
    for batch in ts.Loader(windows, BATCH, **order, seed=1, with_ids=True):
        yield batch["window"].numpy(), [batch[f"c{k}"] for k in range(COLUMNS)]


def not_ahead(folder: Path, order: Order, rows: int) -> Batches:
    """The same as on a system that does not say what is read from the disk."""
    read_ahead._THREAD = -1
    return stash(folder, order, rows)


def memory_map(folder: Path, order: Order, rows: int) -> Batches:
    """One map per column, one fancy index per batch: random pages, so reading ahead is switched off, as in a stash."""
    columns = [np.memmap(folder / f"c{k}.raw", np.float32, "r") for k in range(COLUMNS)]
    for column in columns:
        column._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    for ids in orders(order, rows):
        at = ids[:, None] + np.arange(WINDOW)
        yield ids, [torch.from_numpy(column[at]) for column in columns]


def hugging_face(folder: Path, order: Order, rows: int) -> Batches:
    import datasets

    data = datasets.load_from_disk(str(folder / "datasets")).with_format("numpy")
    for ids in orders(order, rows):
        found = [data[first : first + WINDOW] for first in ids.tolist()]
        yield ids, [torch.from_numpy(np.stack([one[f"c{k}"] for one in found])) for k in range(COLUMNS)]


CONTESTANTS: dict[str, Callable[[Path, Order, int], Batches]] = {
    "ts.open": stash,
    "ts.open, not ahead": not_ahead,
    "NumPy memory map": memory_map,
    "datasets": hugging_face,
}
ORDERS: dict[str, Order] = {"shuffle=True": {"shuffle": True}, f"ts.Blocks({BATCH})": {"order": ts.Blocks(BATCH)}}


@dataclass(frozen=True)
class Work:
    """What all contestants do."""

    order: str
    folder: Path
    rows: int
    steps: int


def child(name: str, work: Work) -> None:
    """Some steps of one contestant; prints the seconds that they took, and the bytes that were read from the disk."""
    batches = CONTESTANTS[name](work.folder, ORDERS[work.order], work.rows)
    for _ in range(CHECKED):
        check(next(batches))
    began, before = time.perf_counter(), bytes_read()
    for _ in range(work.steps):
        next(batches)
    print(time.perf_counter() - began, bytes_read() - before)


def check(batch: tuple[Ids, list[torch.Tensor]]) -> None:
    ids, columns = batch
    assert len(ids) == BATCH
    rows = torch.from_numpy(ids[:, None] + np.arange(WINDOW)) % MODULUS
    for k, column in enumerate(columns):
        assert torch.equal(column, (rows + k).float()), k


def bytes_read() -> int:
    return 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock


def drop(folder: Path) -> None:
    """Take the files out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def turn(name: str, work: Work) -> tuple[float, float]:
    """The seconds of a step of one turn, and the bytes that it reads."""
    drop(work.folder)
    steps = work.steps // 10 if name == "datasets" else work.steps
    command = [sys.executable, __file__, "--child", name, work.order, str(work.folder), str(work.rows), str(steps)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    seconds, nbytes = (float(value) / steps for value in told)
    return seconds, nbytes


def compare(work: Work, names: list[str], rounds: int) -> record.Row:
    turns = [{name: turn(name, work) for name in names} for _ in range(rounds)]
    found = Rounds({name: [one[name][0] for one in turns] for name in names})
    size = f"{work.rows:,} rows of {COLUMNS} float32, {work.rows * COLUMNS * 4 / 1e6:,.0f} MB"
    found.show(f"{work.order}: a step of {BATCH} windows of {WINDOW} rows from the disk; {size}")
    megabytes = {name: min(one[name][1] for one in turns) / 1e6 for name in names}
    for name in names:
        read = f"{megabytes[name]:7.2f} MB a step"
        print(f"    {name:34} {BATCH / found.median(name):9,.0f} windows/s {read}", flush=True)
    return found.row(section="From the disk", case=work.order, megabytes=megabytes)


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=16_000_000, help=f"of {COLUMNS} float32, in three formats")
    parser.add_argument("--steps", type=int, default=60, help=f"of {BATCH} windows, and ten times as many of blocks")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--folder", help="a directory on the disk; by default the temporary directory")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        name, order, folder, *numbers = asked.child
        child(name, Work(order, Path(folder), *map(int, numbers)))
        return
    rows, steps, rounds = (1_000_000, 10, 1) if asked.quick else (asked.rows, asked.steps, asked.rounds)
    names = [name for name in CONTESTANTS if name != "datasets" or importlib.util.find_spec("datasets")]
    if "datasets" not in names:
        print("Not installed, and left out: datasets.")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        make(Path(folder), rows)
        found = [
            compare(Work(order, Path(folder), rows, steps if arguments.get("shuffle") else 10 * steps), names, rounds)
            for order, arguments in ORDERS.items()
        ]
    record.save("bench_disk", found, quick=asked.quick)


if __name__ == "__main__":
    main()
