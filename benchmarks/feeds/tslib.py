"""As in Time-Series-Library: pandas, scaled once in float64, numpy slices per window, cast in the training loop.

A data set like its `Dataset_Custom` for each stretch without a gap, and of several a `ConcatDataset`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from feeds.task import KNOWN, Batch, Task, runs

Window = tuple[NDArray[Any], ...]


class Custom(Dataset[Window]):
    """The windows of one stretch: past, target, marks of the past and of the future, static codes."""

    def __init__(self, data: NDArray[Any], marks: NDArray[Any], static: NDArray[Any], task: Task) -> None:
        self.data, self.marks, self.static, self.task = data, marks, static, task

    def __len__(self) -> int:
        return len(self.data) - self.task.width + 1

    def __getitem__(self, index: int) -> Window:
        anchor = index + self.task.history
        end = anchor + self.task.horizon
        past, target = self.data[index:anchor], self.data[anchor:end, : self.task.targets]
        return past, target, self.marks[index:anchor], self.marks[anchor:end], self.static


class Cast:
    """The batches of a `DataLoader` as the first lines of TSLib's loop make them."""

    def __init__(self, loader: DataLoader[Window]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        for past, target, marks, future_marks, static in self.loader:
            known = torch.cat([marks.float(), future_marks.float()], 1)
            batch = {"past": past.float(), "known": known, "target": target.float()}
            yield batch | ({"static": static} if static.shape[1] else {})


def custom(task: Task) -> Cast:
    frame = pd.read_parquet(task.path)
    scaled = frame[list(task.scaled)].to_numpy(np.float64)
    scaled = (scaled - scaled.mean(0)) / scaled.std(0)
    marks = scaled[:, -len(KNOWN) :]
    static = frame[list(task.static)].to_numpy(np.int64)
    stretches = zip(*runs({name: frame[name].to_numpy() for name in ("series", "t")}))
    parts = [
        Custom(scaled[first : first + rows, : len(task.columns)], marks[first : first + rows], static[first], task)
        for first, rows in stretches
        if rows >= task.width
    ]
    data: Dataset[Window] = parts[0] if len(parts) == 1 else ConcatDataset(parts)
    return Cast(DataLoader(data, task.batch, shuffle=True, drop_last=True, num_workers=task.workers))
