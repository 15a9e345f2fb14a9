"""grain: `MapDataset.source(...).shuffle().repeat().batch()` over slices of numpy arrays."""

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
import torch

from contestants.hand import load
from contestants.workload import Batch, Workload


class Windows:
    """A window per call: a dict of eight slices."""

    def __init__(self, work: Workload) -> None:
        self.columns = {name: column.numpy() for name, column in load(work).items()}
        self.width = work.width
        self.per_series = work.steps - work.width + 1
        self.length = work.series * self.per_series

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = index + index // self.per_series * (self.width - 1)
        return {name: column[start : start + self.width] for name, column in self.columns.items()}


def batched(work: Workload) -> Iterator[Batch]:
    data = grain.MapDataset.source(Windows(work)).shuffle(seed=0).repeat().batch(work.batch, drop_remainder=True)
    # threads of its own make it slower: one sample is a few microseconds of Python
    for batch in data.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)):
        yield {name: torch.from_numpy(np.asarray(column)) for name, column in batch.items()}
