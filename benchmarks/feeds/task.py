"""What every feed is given: a Parquet file of series, the windows that a model trains on, and the check of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Batch = dict[str, torch.Tensor]
Arrays = dict[str, NDArray[Any]]

KNOWN = ("k0", "k1", "k2", "k3")
CODES = 50  # of a static column
VALUES = 1 << 15  # values are whole numbers below it: scaled in float32 they are found again exactly
CHUNK = 1 << 16  # windows whose keys are made at a time


@dataclass(frozen=True)
class Task:
    """Windows of `history + horizon` steps without a gap, from a file sorted by `series` and `t`.

    A batch has `past` `(batch, history, columns)`, `known` `(batch, history + horizon, 4)`, `target`
    `(batch, horizon, targets)`, the first columns of `past`, all float32 and scaled, and with `static` columns
    `static` `(batch, 2)` int64. It may be on the CPU or on the device.
    """

    path: str
    series: int
    steps: int
    batch: int
    history: int
    horizon: int
    columns: tuple[str, ...]
    targets: int
    static: tuple[str, ...] = ()
    workers: int = 0
    device: str = "cpu"  # where the model is

    @property
    def width(self) -> int:
        return self.history + self.horizon

    @property
    def scaled(self) -> tuple[str, ...]:
        """The columns that are scaled, in the order of a packed table."""
        return self.columns + KNOWN


def long_series(path: str, steps: int, batch: int) -> Task:
    """One series of seven variables, all of which are predicted, as in the ETT files."""
    return Task(path, 1, steps, batch, 96, 24, tuple(f"v{k}" for k in range(7)), 7)


def short_series(path: str, series: int, batch: int) -> Task:
    """Series of about 100 steps, half of them with a gap; one variable is predicted; a shop and an item each."""
    return Task(path, series, 100, batch, 48, 12, ("y", "c0", "c1", "c2"), 1, ("shop", "item"))


def write(task: Task) -> None:
    """Make the file: random walks of whole numbers, known columns with a daily wave."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, every = np.random.default_rng(0), np.arange(task.series * task.steps)
    series, t = every // task.steps, every % task.steps
    at, gap = rng.integers(20, task.steps - 5, task.series), rng.integers(1, 5, task.series)
    gap[rng.random(task.series) < (0.5 if task.series > 1 else 2.0)] = 0
    kept = (t < at[series]) | (t >= at[series] + gap[series])
    columns: Arrays = {"series": series.astype(np.int32), "t": t}
    for name in task.columns:
        steps = rng.integers(-50, 51, (task.series, task.steps)).cumsum(1).ravel()
        columns[name] = np.clip(steps + rng.integers(-9999, 9999), 1 - VALUES, VALUES - 1).astype(np.float32)
    for k, name in enumerate(KNOWN):
        columns[name] = np.rint(1000 * np.sin(t * 2 * np.pi / 24 + k) + rng.integers(-9, 10, len(t))).astype(np.float32)
    for k, name in enumerate(task.static):
        columns[name] = (series // 7**k % CODES).astype(np.int64)
    table = pa.table({name: column[kept] for name, column in columns.items()})
    pq.write_table(table, task.path, row_group_size=1 << 18)


def read(task: Task) -> Arrays:
    """All columns of the file as they are."""
    import pyarrow.parquet as pq

    table = pq.read_table(task.path)
    return {name: np.array(table[name]) for name in table.column_names}


def scaling(arrays: Mapping[str, NDArray[Any]], task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the scaled columns over all rows."""
    columns = [arrays[name].astype(np.float64) for name in task.scaled]
    return np.array([column.mean() for column in columns]), np.array([column.std() for column in columns])


def runs(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First row and length of each stretch of one series without a gap."""
    breaks = (np.diff(arrays["series"]) != 0) | (np.diff(arrays["t"]) != 1)
    edges = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(arrays["t"])]])
    return edges[:-1], np.diff(edges)


def starts(arrays: Mapping[str, NDArray[Any]], task: Task) -> NDArray[np.int64]:
    """The first row of every window."""
    begins, lengths = runs(arrays)
    counts = np.maximum(lengths - task.width + 1, 0)
    within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    return np.repeat(begins, counts) + within


# The check


def weights(size: int) -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(-(1 << 62), 1 << 62, size)


def keys_of(entries: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """A hash of each window's values, whole numbers, in all entries of a batch."""
    flat = [entries[name].reshape(len(entries[name]), -1) for name in sorted(entries)]
    values = np.concatenate([part.astype(np.int64) for part in flat], 1)
    found: NDArray[np.int64] = (values * weights(values.shape[1])).sum(1)
    return found


def keys(batch: Batch, task: Task, mean: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.int64]:
    """The keys of a batch, in the units of the file."""
    shapes = {
        "past": (task.batch, task.history, len(task.columns)),
        "known": (task.batch, task.width, len(KNOWN)),
        "target": (task.batch, task.horizon, task.targets),
        **({"static": (task.batch, len(task.static))} if task.static else {}),
    }
    assert {name: tuple(entry.shape) for name, entry in batch.items()} == shapes, f"shapes are not {shapes}"
    columns = {
        "past": slice(len(task.columns)),
        "known": slice(len(task.columns), None),
        "target": slice(task.targets),
    }
    whole = {}
    for name, entry in batch.items():
        values = entry.cpu().numpy()
        assert values.dtype == (np.int64 if name == "static" else np.float32), f"{name} is {values.dtype}"
        if name in columns:
            exact = values.astype(np.float64) * scale[columns[name]] + mean[columns[name]]
            values = np.rint(exact)
            assert np.abs(exact - values).max() < 0.1, f"{name} is scaled otherwise"
        whole[name] = values
    return keys_of(whole)


def expected(task: Task) -> NDArray[np.int64]:
    """The keys of all windows of the file, in ascending order."""
    arrays = read(task)
    table = np.stack([arrays[name] for name in task.scaled], 1).astype(np.int64)
    every = sliding_window_view(table, task.width, axis=0)
    static = np.stack([arrays[name] for name in task.static], 1) if task.static else None
    found, first = [], starts(arrays, task)
    for begin in range(0, len(first), CHUNK):
        some = first[begin : begin + CHUNK]
        window = every[some].transpose(0, 2, 1)
        entries = {
            "past": window[:, : task.history, : len(task.columns)],
            "known": window[:, :, len(task.columns) :],
            "target": window[:, task.history :, : task.targets],
        }
        found.append(keys_of(entries | ({} if static is None else {"static": static[some]})))
    joined = np.sort(np.concatenate(found))
    assert (np.diff(joined) != 0).all(), "two windows have the same values"
    return joined
