"""Training windows from a file that is not in memory: `ts.open` beside a NumPy memory map and Hugging Face `datasets`.

    python benchmarks/bench_disk.py            # some minutes, 4 GB on disk in the temporary directory
    python benchmarks/bench_disk.py --quick    # small, to see that it runs

Each contestant runs in a fresh process, and before each turn the system is told to drop the file from the page cache
(`posix_fadvise`), so every page comes from the disk once: that is what a file larger than memory costs. Contestants
yield the same random windows, or blocks of consecutive ones, as `(batch, window)` of each column, and take turns; the
best turn counts. Values encode their row, and every batch of a first turn is compared before any turn is timed.

"read ahead" tells the kernel (`MADV_WILLNEED`) which pages the next steps will read; it is an experiment of this file.
"""

import argparse
import importlib.util
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import tensorstash as ts

COLUMNS = 8
WINDOW = 64
BATCH = 256
AHEAD = 4  # steps

Ids = NDArray[np.int64]
Batches = Iterator[tuple[Ids, list[torch.Tensor]]]  # the first rows of windows, and the columns


def make(folder: Path, rows: int) -> None:
    """The same columns as a stash, as raw files, and as a data set."""
    data = {f"c{k}": np.arange(rows, dtype=np.float32) + k for k in range(COLUMNS)}
    ts.load(data, file=folder / "x.safetensors", progress=False)
    for name, values in data.items():
        values.tofile(folder / f"{name}.raw")
    if importlib.util.find_spec("datasets"):
        import datasets

        datasets.Dataset.from_dict(data).save_to_disk(str(folder / "datasets"))


def orders(shuffle: bool | ts.Blocks, rows: int) -> Iterator[Ids]:
    yield from ts.Sampler(rows - WINDOW + 1, BATCH, shuffle=shuffle, seed=1)


def stash(folder: Path, shuffle: bool | ts.Blocks, _: int) -> Batches:
    windows = ts.Windows(ts.open(folder / "x.safetensors"), WINDOW)
    for batch in ts.Loader(windows, BATCH, shuffle=shuffle, seed=1, with_ids=True):
        yield batch["window"].numpy(), [batch[f"c{k}"] for k in range(COLUMNS)]


def read_ahead(folder: Path, shuffle: bool | ts.Blocks, rows: int) -> Batches:
    """The same, and the kernel knows the pages of the next steps."""
    opened = ts.open(folder / "x.safetensors")
    windows = ts.Windows(opened, WINDOW)
    begins = [opened._segment.entries[f"c{k}"].begin for k in range(COLUMNS)]
    memory, waiting = opened._segment.memory, deque[Ids]()

    def announce(ids: Ids) -> None:
        for begin in begins:
            first = (begin + ids * 4) // mmap.PAGESIZE * mmap.PAGESIZE
            for at in first.tolist():
                memory.madvise(mmap.MADV_WILLNEED, at, min(WINDOW * 4 + mmap.PAGESIZE, len(memory) - at))
        waiting.append(ids)

    for ids in orders(shuffle, rows):
        announce(ids)
        if len(waiting) > AHEAD:
            now = waiting.popleft()
            batch = windows[now]
            yield now, [batch[f"c{k}"] for k in range(COLUMNS)]


def memory_map(folder: Path, shuffle: bool | ts.Blocks, rows: int) -> Batches:
    """One map per column, one fancy index per batch: random pages, so reading ahead is switched off, as in a stash."""
    columns = [np.memmap(folder / f"c{k}.raw", np.float32, "r") for k in range(COLUMNS)]
    for column in columns:
        column._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    for ids in orders(shuffle, rows):
        at = ids[:, None] + np.arange(WINDOW)
        yield ids, [torch.from_numpy(column[at]) for column in columns]


def hugging_face(folder: Path, shuffle: bool | ts.Blocks, rows: int) -> Batches:
    import datasets

    data = datasets.load_from_disk(str(folder / "datasets")).with_format("numpy")
    for ids in orders(shuffle, rows):
        found = [data[first : first + WINDOW] for first in ids.tolist()]
        yield ids, [torch.from_numpy(np.stack([one[f"c{k}"] for one in found])) for k in range(COLUMNS)]


CONTESTANTS: dict[str, Callable[[Path, bool | ts.Blocks, int], Batches]] = {
    "ts.open": stash,
    "ts.open, read ahead": read_ahead,
    "NumPy memory map": memory_map,
    "datasets": hugging_face,
}
ORDERS: dict[str, bool | ts.Blocks] = {"shuffle=True": True, f"ts.Blocks({BATCH})": ts.Blocks(BATCH)}


@dataclass(frozen=True)
class Work:
    """What all contestants do."""

    order: str
    folder: Path
    rows: int
    steps: int


def child(name: str, work: Work, is_checked: bool) -> None:
    """Some steps of one contestant; the seconds that they took."""
    batches = CONTESTANTS[name](work.folder, ORDERS[work.order], work.rows)
    began = time.perf_counter()
    for _ in range(work.steps):
        ids, columns = next(batches)
        assert len(ids) == BATCH
        for k, column in enumerate(columns if is_checked else ()):
            assert torch.equal(column, torch.from_numpy((ids[:, None] + np.arange(WINDOW)).astype(np.float32)) + k), (
                name,
                k,
            )
    print(time.perf_counter() - began)


def drop(folder: Path) -> None:
    """Take the files out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def turn(name: str, work: Work, is_checked: bool) -> float:
    numbers = map(str, (work.rows, work.steps, int(is_checked)))
    command = [sys.executable, __file__, "--child", name, work.order, str(work.folder), *numbers]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        name, order, folder, *numbers = asked.child
        rows, steps, is_checked = map(int, numbers)
        child(name, Work(order, Path(folder), rows, steps), bool(is_checked))
        return
    rows, steps, rounds = (1_000_000, 10, 1) if asked.quick else (16_000_000, 200, asked.rounds)
    names = [name for name in CONTESTANTS if name != "datasets" or importlib.util.find_spec("datasets")]
    if "datasets" not in names:
        print("Not installed, and left out: datasets.")
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), rows)
        for order in ORDERS:
            compare(Work(order, Path(folder), rows, steps), names, rounds)


def compare(work: Work, names: list[str], rounds: int) -> None:
    for name in names:
        turn(name, replace(work, steps=min(work.steps, 20)), is_checked=True)
    best = dict.fromkeys(names, float("inf"))
    for _ in range(rounds):
        for name in names:
            drop(work.folder)
            best[name] = min(best[name], turn(name, work, is_checked=False))
    print(f"\n{work.order}: {work.steps} steps of {BATCH} windows of {WINDOW} rows of {COLUMNS} float32, from the disk")
    for name in names:
        rate = work.steps * BATCH / best[name]
        print(
            f"    {name:22s} {best[names[0]] / best[name]:5.2f} {best[name]:7.3f} s {rate:9,.0f} windows/s", flush=True
        )


if __name__ == "__main__":
    main()
