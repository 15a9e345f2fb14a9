"""Gathers written by hand: the columns read once into tensors, windows in shuffled order, a few calls per batch."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow.parquet as pq
import torch

from contestants.workload import NAMES, Batch, Workload

CHUNK = 1024  # windows

Gather = Callable[[torch.Tensor, torch.Tensor], object]  # of first rows, into a result

for lazy in ("pyarrow.dataset", "pandas"):  # pyarrow imports them when it first reads, the latter if it is there
    with suppress(ImportError):
        importlib.import_module(lazy)


def load(work: Workload) -> Batch:
    """The columns, `(rows,)` each."""
    table = pq.read_table(work.path, columns=list(NAMES))
    return {name: torch.from_numpy(np.array(table[name])) for name in NAMES}


def load_packed(work: Workload) -> torch.Tensor:
    """All columns, `(rows, 8)`."""
    return torch.stack(list(load(work).values()), dim=1)


def load_packed_huge(work: Workload) -> torch.Tensor:
    """The same in huge pages where the system has them, which numpy asks for."""
    return torch.from_numpy(np.stack([column.numpy() for column in load(work).values()], 1))


def starts(work: Workload, batches: int = 1) -> Iterator[torch.Tensor]:
    """First rows of the windows of so many batches, int64: every window once, then once more, and so on."""
    per_series = work.steps - work.width + 1
    while True:
        order = torch.randperm(work.series * per_series)
        for ids in torch.split(order[: len(order) // work.batch * work.batch], batches * work.batch):
            yield ids + ids // per_series * (work.width - 1)


def fancy(work: Workload) -> Iterator[Batch]:
    columns, slots = load(work), torch.arange(work.width)
    for some in starts(work):
        index = some[:, None] + slots
        yield {name: column[index] for name, column in columns.items()}


def fancy_packed(work: Workload) -> Iterator[torch.Tensor]:
    table, slots = load_packed(work), torch.arange(work.width)
    for some in starts(work):
        yield table[some[:, None] + slots]


def sliding(work: Workload) -> Iterator[Batch]:
    columns = load(work).items()
    views = {name: np.lib.stride_tricks.sliding_window_view(column.numpy(), work.width) for name, column in columns}
    for some in starts(work):
        at = some.numpy()
        yield {name: torch.from_numpy(view[at]) for name, view in views.items()}


def unfold(work: Workload) -> Iterator[Batch]:
    views = {name: column.unfold(0, work.width, 1) for name, column in load(work).items()}
    for some in starts(work):
        yield {name: view.index_select(0, some) for name, view in views.items()}


def strided(table: torch.Tensor, work: Workload) -> torch.Tensor:
    """Every window of the packed columns as a row of a view, `(rows - width + 1, width * 8)`."""
    columns = len(NAMES)
    return table.as_strided((work.rows - work.width + 1, work.width * columns), (columns, 1))


def packed(work: Workload) -> Iterator[torch.Tensor]:
    view = strided(load_packed(work), work)
    for some in starts(work):
        yield view.index_select(0, some).view(work.batch, work.width, len(NAMES))


def packed_reused(work: Workload) -> Iterator[torch.Tensor]:
    """Two results in turn, so that the loop may hold the last one."""
    return reused(selecting(strided(load_packed(work), work)), work)


def packed_huge(work: Workload) -> Iterator[torch.Tensor]:
    return reused(selecting(strided(load_packed_huge(work), work)), work)


def chunked(work: Workload) -> Iterator[torch.Tensor]:
    """One call for many small batches, which are views of its result; and huge pages."""
    return reused(selecting(strided(load_packed_huge(work), work)), work, max(1, CHUNK // work.batch))


def selecting(view: torch.Tensor) -> Gather:
    return lambda some, out: torch.index_select(view, 0, some, out=out)


def reused(gather: Gather, work: Workload, batches: int = 1) -> Iterator[torch.Tensor]:
    """So many batches are gathered by one call into one of two results in turn, and are views of it."""
    size = batches * work.batch, work.width * len(NAMES)
    results = [torch.from_numpy(np.empty(size, np.float32)) for _ in range(2)]
    for some in starts(work, batches):
        out = results[0][: len(some)]
        gather(some, out)
        yield from out.view(-1, work.batch, work.width, len(NAMES)).unbind()
        results.reverse()


def separate_reused(work: Workload) -> Iterator[Batch]:
    """All columns in one block and one call; two results in turn, so that the loop may hold the last one."""
    block = torch.stack(list(load(work).values()))
    view = block.as_strided((len(NAMES) * work.rows - work.width + 1, work.width), (1, 1))
    first = torch.arange(len(NAMES))[:, None] * work.rows
    results = [torch.zeros(len(NAMES) * work.batch, work.width) for _ in range(2)]
    for some in starts(work):
        torch.index_select(view, 0, (first + some).view(-1), out=results[0])
        yield dict(zip(NAMES, results[0].chunk(len(NAMES))))
        results.reverse()
