"""grain: `MapDataset.source(...).shuffle().repeat().batch()` over slices of numpy arrays."""

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
import torch

from contestants.hand import load, load_packed
from contestants.workload import Batch, Windows, Workload


class Packed(Windows):
    """A window per call: one slice of a packed array."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.table = load_packed(work).numpy()

    def __getitem__(self, index: int) -> Any:
        start = index + index // self.per_series * (self.width - 1)
        return self.table[start : start + self.width]


class Slices(Windows):
    """A window per call: a dict of eight slices."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.columns = {name: column.numpy() for name, column in load(work).items()}

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = index + index // self.per_series * (self.width - 1)
        return {name: column[start : start + self.width] for name, column in self.columns.items()}


def batched(work: Workload) -> Iterator[Batch]:
    for batch in shuffled(Slices(work), work):
        yield {name: torch.from_numpy(np.asarray(column)) for name, column in batch.items()}


def packed(work: Workload) -> Iterator[torch.Tensor]:
    return (torch.from_numpy(np.asarray(batch)) for batch in shuffled(Packed(work), work))


def shuffled(source: Any, work: Workload) -> Any:
    data = grain.MapDataset.source(source).shuffle(seed=0).repeat().batch(work.batch, drop_remainder=True)
    # threads of its own make it slower: one sample is a few microseconds of Python
    return data.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
