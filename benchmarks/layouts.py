"""File formats of the same data: how each writes it, what it does once before reading, and how it reads a batch."""

import io
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

import tensorstash as ts

COLUMNS = 8
LENGTH = 120
STRIDE = 24
GROUP = 1 << 16  # rows of a row group and of a record batch
SHARDS = 8
BUFFER = 5000  # windows among which the tar stream shuffles

Batch = dict[str, Any]
Ids = NDArray[np.int64]
Read = Callable[[Ids], Batch]  # x: (batch, time, columns), or a (batch, time) for each column


@dataclass(frozen=True)
class Data:
    """Where the files are, and how many series of how many steps are in them."""

    folder: Path
    series: int
    steps: int

    @property
    def each(self) -> int:
        """Windows of one series."""
        return (self.steps - LENGTH) // STRIDE + 1

    @property
    def windows(self) -> int:
        return self.series * self.each

    def starts(self, ids: Ids) -> Ids:
        """The first rows of windows."""
        return ids // self.each * self.steps + ids % self.each * STRIDE

    def values(self) -> NDArray[np.float32]:
        """`(rows, columns)`: row r, column c holds r * 8 + c, which float32 holds exactly up to 2**24."""
        rows = self.series * self.steps
        assert rows * COLUMNS <= 1 << 24
        return np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS)

    def every(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All windows with their numbers."""
        values = self.values()
        for number, start in enumerate(self.starts(np.arange(self.windows)).tolist()):
            yield number, values[start : start + LENGTH]

    def table(self) -> pa.Table:
        values = self.values()
        series = np.repeat(np.arange(self.series, dtype=np.int32), self.steps)
        columns = {f"c{k}": np.ascontiguousarray(values[:, k]) for k in range(COLUMNS)}
        return pa.table({"series": series, **columns})


# The formats: what is written, what is done once before reading, and what reads a batch


def write_files(data: Data) -> None:
    folder = data.folder / "files"
    folder.mkdir()
    for number, window in data.every():
        np.save(folder / f"{number}.npy", window)


def in_files(data: Data) -> Any:
    return str(data.folder / "files")


def read_files(_: Data, folder: str) -> Read:
    return lambda ids: {"x": torch.from_numpy(np.stack([np.load(f"{folder}/{number}.npy") for number in ids]))}


def write_shards(data: Data, name: str, shards: int) -> None:
    folder = data.folder / name
    folder.mkdir()
    with ExitStack() as stack:
        files = [stack.enter_context(tarfile.open(folder / f"{k}.tar", "w")) for k in range(shards)]
        for number, window in data.every():
            content = io.BytesIO()
            np.save(content, window)
            entry = tarfile.TarInfo(f"{number}.npy")
            entry.size = content.tell()
            content.seek(0)
            files[number * shards // data.windows].addfile(entry, content)


def unpack(data: Data) -> Any:
    """The archive's files in memory; `tar` unpacks faster than Python where it is there."""
    place = tempfile.mkdtemp(prefix="formats-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    archive = str(data.folder / "tar" / "0.tar")
    if shutil.which("tar"):
        subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
    else:
        with tarfile.open(archive) as file:
            file.extractall(place)
    return place


def write_hdf5(data: Data) -> None:
    import h5py

    with h5py.File(data.folder / "data.h5", "w") as file:
        file["x"] = data.values()


def read_hdf5(data: Data, _: Any) -> Read:
    import h5py

    values = h5py.File(data.folder / "data.h5")["x"]

    def read(ids: Ids) -> Batch:
        out = np.empty((len(ids), LENGTH, COLUMNS), np.float32)
        for k, start in enumerate(data.starts(ids).tolist()):
            out[k] = values[start : start + LENGTH]
        return {"x": torch.from_numpy(out)}

    return read


def write_arrow(data: Data) -> None:
    table = data.table()
    with pa.ipc.new_file(data.folder / "data.arrow", table.schema) as file:
        file.write_table(table, GROUP)


def read_arrow(data: Data, _: Any) -> Read:
    # what is read is written to nowhere
    warnings.filterwarnings("ignore", "The given NumPy array is not writable")
    table = pa.ipc.open_file(pa.memory_map(str(data.folder / "data.arrow"))).read_all().drop_columns("series")

    def read(ids: Ids) -> Batch:
        rows = data.starts(ids)[:, None] + np.arange(LENGTH)
        found = table.take(pa.array(rows.ravel()))
        return {name: torch.from_numpy(found[name].to_numpy()).view(len(ids), LENGTH) for name in table.column_names}

    return read


def write_parquet(data: Data) -> None:
    pq.write_table(data.table(), data.folder / "data.parquet", row_group_size=GROUP)


def read_parquet(data: Data, _: Any) -> Read:
    file = pq.ParquetFile(data.folder / "data.parquet", memory_map=True)
    columns = [f"c{k}" for k in range(COLUMNS)]

    def read(ids: Ids) -> Batch:
        starts = data.starts(ids)
        groups = np.unique([starts // GROUP, (starts + LENGTH - 1) // GROUP])
        table = file.read_row_groups(groups.tolist(), columns)
        # only the last group of the file is not full, so that rows of the table are counted in whole groups
        at = np.searchsorted(groups, starts // GROUP) * GROUP + starts % GROUP
        return {
            name: torch.from_numpy(np.lib.stride_tricks.sliding_window_view(table[name].to_numpy(), LENGTH)[at])
            for name in columns
        }

    return read


def write_map(data: Data) -> None:
    np.save(data.folder / "data.npy", data.values())


def read_map(data: Data, _: Any) -> Read:
    values = np.load(data.folder / "data.npy", mmap_mode="r")
    shape, strides = (len(values) - LENGTH + 1, LENGTH, COLUMNS), (values.strides[0], *values.strides)
    view = np.lib.stride_tricks.as_strided(values, shape, strides, writeable=False)
    return lambda ids: {"x": torch.from_numpy(view[data.starts(ids)])}


def write_stash(data: Data) -> None:
    ts.load(data.folder / "data.parquet", {"x": [f"c{k}" for k in range(COLUMNS)]}, entity="series").save(
        data.folder / "data.safetensors"
    )


def open_stash(data: Data) -> Any:
    return ts.Windows(ts.open(data.folder / "data.safetensors"), history=LENGTH, stride=STRIDE)


def load_packed(data: Data) -> Any:
    columns = {"x": [f"c{k}" for k in range(COLUMNS)]}
    stash = ts.load(data.folder / "data.parquet", columns, entity="series", progress=False)
    return ts.Windows(stash, history=LENGTH, stride=STRIDE)


def load_separate(data: Data) -> Any:
    stash = ts.load(data.folder / "data.parquet", entity="series", progress=False)
    return ts.Windows(stash, history=LENGTH, stride=STRIDE)


def read_windows(_: Data, windows: Any) -> Read:
    found: Read = windows.gather
    return found


def nothing(_: Data) -> Any:
    return None


@dataclass(frozen=True)
class Format:
    """How a format is written (`file`: what is then on disk), made ready once, and read; `needs` is a module."""

    file: str
    write: Callable[[Data], None]
    stage: Callable[[Data], Any]
    read: Callable[[Data, Any], Read] | None  # None: a stream
    note: str
    needs: str = "torch"


FORMATS = {
    "stash, packed": Format("data.parquet", nothing, load_packed, read_windows, "ts.load of the Parquet file"),
    "stash, separate": Format("data.parquet", nothing, load_separate, read_windows, "a tensor for each column"),
    "stash, saved": Format("data.safetensors", write_stash, open_stash, read_windows, "ts.open maps the file"),
    "NumPy memory map": Format("data.npy", write_map, nothing, read_map, "a strided view, indexed by a batch's rows"),
    "HDF5": Format("data.h5", write_hdf5, nothing, read_hdf5, "contiguous, one slice per window", "h5py"),
    "Arrow IPC, mapped": Format(
        "data.arrow", write_arrow, nothing, read_arrow, f"record batches of {GROUP:,} rows, one take per batch"
    ),
    "Parquet": Format(
        "data.parquet", write_parquet, nothing, read_parquet, f"per batch all row groups ({GROUP:,} rows) it needs"
    ),
    "file per window": Format("files", write_files, in_files, read_files, "np.load of .npy files"),
    "tar, unpacked": Format(
        "tar", lambda data: write_shards(data, "tar", 1), unpack, read_files, "into /dev/shm first, which is counted"
    ),
    "tar stream": Format(
        "shards",
        lambda data: write_shards(data, "shards", SHARDS),
        nothing,
        None,
        f"{SHARDS} shards; shuffled among {BUFFER:,} windows only",
    ),
}
