"""Batches divided into their windows, and put together from the windows of several, as PyTorch's data sets need it."""

from collections.abc import Mapping, Sequence

import torch

from tensorstash.common.dtypes import Int64s, as_integers


def one_by_one(batch: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """The windows of a batch, which share its memory."""
    windows = zip(*(tensor.unbind() for tensor in batch.values()))
    return [dict(zip(batch, window)) for window in windows]


def put_together(parts: Sequence[tuple[Int64s, Mapping[str, torch.Tensor]]], count: int) -> dict[str, torch.Tensor]:
    """One batch of `count` windows from batches with the same entries, each with the indices of its windows in it.

    By numpy, because torch's threads do not survive a fork, and a worker of a `DataLoader` may be a forked process.
    """
    _, like = parts[0]
    batch = {name: tensor.new_empty((count, *tensor.shape[1:])) for name, tensor in like.items()}
    for which, part in parts:
        for name, tensor in part.items():
            as_integers(batch[name]).numpy()[which] = as_integers(tensor).numpy()
    return batch
