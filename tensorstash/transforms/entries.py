"""The entries of a batch that transforms take."""

from collections.abc import Mapping

import torch

from tensorstash.errors import unknown


def span_of(batch: Mapping[str, object], name: str) -> torch.Tensor:
    """The entry with that name: `ColumnError` if there is none, `TypeError` if it is no tensor."""
    if name not in batch:
        raise unknown(name, batch, "the batch", "span")
    entry = batch[name]
    if not isinstance(entry, torch.Tensor):
        raise TypeError(f"A span must be a tensor; {name!r} is a {type(entry).__name__}. Use torch.as_tensor.")
    return entry
