"""torchrl: a replay buffer of all rows, and slices of its trajectories, whose limits are found once."""

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, SliceSampler, TensorDictReplayBuffer

from contestants.hand import load, load_packed
from contestants.workload import NAMES, Batch, Workload


def slices(work: Workload) -> Iterator[Any]:
    return sampled(load(work), work)


def packed(work: Workload) -> Iterator[Any]:
    return sampled({"x": load_packed(work)}, work)


def sampled(columns: Batch, work: Workload) -> Iterator[Any]:
    sampler = SliceSampler(slice_len=work.width, traj_key="series", cache_values=True)
    storage = LazyTensorStorage(work.rows)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=work.batch * work.width)
    series = torch.arange(work.series).repeat_interleave(work.steps)
    buffer.extend(TensorDict({**columns, "series": series}, [work.rows]))
    while True:
        yield buffer.sample()


def columns(batch: Any, work: Workload) -> Batch:
    if "x" in {*batch.keys()}:
        return dict(zip(NAMES, batch["x"].reshape(-1, work.width, len(NAMES)).unbind(2)))
    return {name: batch[name].reshape(-1, work.width) for name in NAMES}
