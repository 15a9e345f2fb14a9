"""What every contestant is given: a Parquet file of many series, windows of it, and the check of a batch against it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

NAMES = ("y", "x0", "x1", "x2", "x3", "x4", "x5", "x6")
COVARIATES = NAMES[1:]
VALUES = 1 << 24  # whole numbers that float32 holds exactly
FACTORS = (9_386_357, 3_058_561, 14_002_781, 5_519_923, 11_710_345, 1_299_721, 7_368_787, 15_485_867)  # odd

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """Windows of `history + horizon` steps from a file with columns `series`, `t` and `NAMES`, sorted by the first two.

    Every series has the same number of steps. A contestant yields batches of `batch` random windows without end.
    """

    path: str
    series: int
    steps: int
    batch: int
    workers: int = 0
    history: int = 96
    horizon: int = 24

    @property
    def rows(self) -> int:
        return self.series * self.steps

    @property
    def windows(self) -> int:
        return self.series * (self.steps - self.width + 1)

    @property
    def width(self) -> int:
        return self.history + self.horizon

    @property
    def window_bytes(self) -> int:
        return self.width * len(NAMES) * 4


class Windows:
    """As many as the windows of a workload, without the function that yields the one of a number."""

    def __init__(self, work: Workload) -> None:
        self.width = work.width
        self.per_series = work.steps - work.width + 1
        self.length = work.series * self.per_series

    def __len__(self) -> int:
        return self.length


def forever(batches: Iterable[Any]) -> Iterator[Any]:
    """One epoch after the other."""
    while True:
        yield from batches


def values(rows: torch.Tensor, column: int) -> torch.Tensor:
    """What stands in these rows of a column, float32: another permutation of the row numbers in each column."""
    return ((rows * FACTORS[column] + column) % VALUES).float()


def write(work: Workload) -> None:
    """Make the file, in row groups of a million rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if work.rows > VALUES:
        raise ValueError(f"The values of {VALUES:,} rows tell them apart; got {work.rows:,} rows. Take fewer.")
    rows = torch.arange(work.rows)
    columns = {name: values(rows, k).numpy() for k, name in enumerate(NAMES)}
    series = np.repeat(np.arange(work.series, dtype=np.int32), work.steps)
    table = pa.table({"series": series, "t": (rows % work.steps).numpy(), **columns})
    pq.write_table(table, work.path, row_group_size=1_000_000)


def check(batch: Batch, work: Workload) -> torch.Tensor:
    """The first rows of the windows of a batch; fail unless each is in the file, whole and in one series."""
    first = batch[NAMES[0]][:, 0].long()
    starts = first * pow(FACTORS[0], -1, VALUES) % VALUES
    outside = (starts >= work.rows) | (starts % work.steps > work.steps - work.width)
    assert not outside.any(), f"{outside.sum()} of {len(outside)} windows are not within one series."
    rows = starts[:, None] + torch.arange(work.width)
    for k, name in enumerate(NAMES):
        found, expected = torch.as_tensor(batch[name]), values(rows, k)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), f"{name}: {found.shape}, {found.dtype}"
        assert torch.equal(found, expected), f"{name}: {(found != expected).any(1).sum()} windows are not in the file."
    assert len(starts) == work.batch, f"A batch has {len(starts)} windows instead of {work.batch}."
    return starts
