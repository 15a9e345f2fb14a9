"""`torch.utils.data.DataLoader`, over three data sets that people write."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from contestants.hand import load, load_packed, load_packed_huge, starts, strided
from contestants.workload import NAMES, Batch, Windows, Workload, forever


class Slices(Windows, Dataset[Any]):
    """A window per call: a dict of eight slices."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.columns = load(work)

    def __getitem__(self, index: int) -> Batch:
        start = index + index // self.per_series * (self.width - 1)
        return {name: column[start : start + self.width] for name, column in self.columns.items()}


class PackedSlices(Windows, Dataset[Any]):
    """A window per call: one slice of a packed tensor."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.table = load_packed(work)

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index + index // self.per_series * (self.width - 1)
        return self.table[start : start + self.width]


class Gathered(Windows, Dataset[Any]):
    """A batch per call."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.views = {name: column.unfold(0, work.width, 1) for name, column in load(work).items()}

    def __getitems__(self, indices: list[int]) -> Batch:
        ids = torch.tensor(indices)
        starts = ids + ids // self.per_series * (self.width - 1)
        return {name: view.index_select(0, starts) for name, view in self.views.items()}


class GatheredPacked(Windows, Dataset[Any]):
    """A batch per call, of a strided view of packed columns in huge pages."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.view = strided(load_packed_huge(work), work)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        ids = torch.tensor(indices)
        starts = ids + ids // self.per_series * (self.width - 1)
        return self.view.index_select(0, starts).view(-1, self.width, len(NAMES))


class Strided(Dataset[Any]):
    """A batch per call, for a tensor of the first rows of its windows."""

    def __init__(self, work: Workload) -> None:
        self.view, self.work = strided(load_packed_huge(work), work), work

    def __getitem__(self, some: torch.Tensor) -> torch.Tensor:
        return self.view.index_select(0, some).view(-1, self.work.width, len(NAMES))


def as_it_is(batch: Any) -> Any:
    return batch


def shuffled(data: Dataset[Any], work: Workload, collate: Any = None) -> Iterator[Any]:
    options: dict[str, Any] = {"num_workers": work.workers, "persistent_workers": work.workers > 0}
    return forever(DataLoader(data, work.batch, shuffle=True, drop_last=True, collate_fn=collate, **options))


def slices(work: Workload) -> Iterator[Batch]:
    return shuffled(Slices(work), work)


def packed_slices(work: Workload) -> Iterator[torch.Tensor]:
    return shuffled(PackedSlices(work), work)


def getitems(work: Workload) -> Iterator[Batch]:
    return shuffled(Gathered(work), work, as_it_is)


def getitems_packed(work: Workload) -> Iterator[torch.Tensor]:
    return shuffled(GatheredPacked(work), work, as_it_is)


def tensors(work: Workload) -> Iterator[torch.Tensor]:
    """The sampler yields tensors of first rows, and nothing is collated."""
    return iter(DataLoader(Strided(work), batch_size=None, sampler=starts(work), num_workers=work.workers))
