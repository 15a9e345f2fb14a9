"""Hugging Face `datasets`: a memory-mapped Arrow file in torch format, sliced by a data set under a `DataLoader`."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from datasets import disable_progress_bars, load_dataset
from torch.utils.data import Dataset

from contestants.loader import shuffled
from contestants.workload import NAMES, Batch, Windows, Workload


class Slices(Windows, Dataset[Any]):
    """A window per call: one slice of the data set."""

    def __init__(self, rows: Any, work: Workload) -> None:
        super().__init__(work)
        self.rows = rows

    def __getitem__(self, index: int) -> Any:
        start = index + index // self.per_series * (self.width - 1)
        return self.rows[start : start + self.width]


def slices(work: Workload) -> Iterator[Batch]:
    """The Arrow file is made anew, since that is what the first batch waits for."""
    disable_progress_bars()
    with TemporaryDirectory() as cache:
        data = load_dataset("parquet", data_files=work.path, split="train", cache_dir=cache)
        yield from shuffled(Slices(data.select_columns(list(NAMES)).with_format("torch"), work), work)
