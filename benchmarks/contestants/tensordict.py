"""tensordict: one index for all columns."""

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict

from contestants.hand import load, load_packed, starts
from contestants.workload import NAMES, Batch, Workload


def indexed(work: Workload) -> Iterator[Any]:
    columns, slots = TensorDict(load(work), [work.rows]), torch.arange(work.width)
    for some in starts(work):
        yield columns[some[:, None] + slots]


def packed(work: Workload) -> Iterator[Any]:
    columns, slots = TensorDict({"x": load_packed(work)}, [work.rows]), torch.arange(work.width)
    for some in starts(work):
        yield columns[some[:, None] + slots]


def columns(batch: Any, _: Workload) -> Batch:
    if "x" in {*batch.keys()}:
        return dict(zip(NAMES, batch["x"].unbind(2)))
    return {name: batch[name] for name in NAMES}
