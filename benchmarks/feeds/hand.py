"""By hand, as fast as PyTorch goes: every window is a row of a strided view, and one call gathers many batches."""

from collections.abc import Iterator

import numpy as np
import torch

from feeds.task import Batch, Task, read, scaling, starts

TOGETHER = 1024  # windows, or one batch


class Chunks:
    """The batches of an epoch; all but the last two portions of them are overwritten."""

    def __init__(self, task: Task) -> None:
        arrays, self.task = read(task), task
        mean, scale = scaling(arrays, task)
        # numpy asks for huge pages for an array of this size
        table = torch.from_numpy(np.stack([(arrays[n] - m) / s for n, m, s in zip(task.scaled, mean, scale)], 1))
        self.table = torch.from_numpy(np.empty(table.shape, np.float32))
        self.table.copy_(table)
        rows, columns = self.table.shape
        self.view = self.table.as_strided((rows - task.width + 1, task.width * columns), (columns, 1))
        self.static = torch.from_numpy(np.stack([arrays[name] for name in task.static], 1)) if task.static else None
        self.starts = torch.from_numpy(starts(arrays, task))
        self.portion = max(1, TOGETHER // task.batch) * task.batch

    def __len__(self) -> int:
        return len(self.starts) // self.task.batch

    def __iter__(self) -> Iterator[Batch]:
        order = self.starts[torch.randperm(len(self.starts))[: len(self) * self.task.batch]]
        results = [torch.from_numpy(np.empty((self.portion, self.view.shape[1]), np.float32)) for _ in range(2)]
        for some in torch.split(order, self.portion):
            out = results[0][: len(some)]
            torch.index_select(self.view, 0, some, out=out)
            yield from self.batches(out.view(len(some), self.task.width, -1), some)
            results.reverse()

    def batches(self, windows: torch.Tensor, some: torch.Tensor) -> Iterator[Batch]:
        history, columns, targets = self.task.history, len(self.task.columns), self.task.targets
        for window, first in zip(*(torch.split(each, self.task.batch) for each in (windows, some))):
            batch = {
                "past": window[:, :history, :columns],
                "known": window[:, :, columns:],
                "target": window[:, history:, :targets],
            }
            if self.static is not None:
                batch["static"] = self.static.index_select(0, first)
            yield batch


def chunks(task: Task) -> Chunks:
    return Chunks(task)
