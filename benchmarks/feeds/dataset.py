"""The usual `Dataset` and `DataLoader`: columns in tensors, scaled once; a window is a few slices."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from feeds.task import Batch, Task, read, scaling, starts


class Slices(Dataset[Batch]):
    """A window per call: a dict of slices."""

    def __init__(self, task: Task) -> None:
        arrays, self.task = read(task), task
        mean, scale = scaling(arrays, task)
        table = np.stack([arrays[name] for name in task.scaled], 1)
        scaled = torch.from_numpy(((table - mean) / scale).astype(np.float32))
        self.past, self.known = scaled[:, : len(task.columns)].contiguous(), scaled[:, len(task.columns) :].contiguous()
        self.static = torch.from_numpy(np.stack([arrays[name] for name in task.static], 1)) if task.static else None
        self.starts = starts(arrays, task)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Batch:
        start, task = int(self.starts[index]), self.task
        anchor, end = start + task.history, start + task.width
        window = {
            "past": self.past[start:anchor],
            "known": self.known[start:end],
            "target": self.past[anchor:end, : task.targets],
        }
        if self.static is not None:
            window["static"] = self.static[start]
        return window


def slices(task: Task) -> DataLoader[Batch]:
    pinned = task.device != "cpu"
    return DataLoader(
        Slices(task), task.batch, shuffle=True, drop_last=True, num_workers=task.workers, pin_memory=pinned
    )
