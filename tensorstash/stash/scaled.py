"""Which tensors hold scaled values: a note on the tensor itself, because a batch is a plain dict of tensors.

A slice, a copy or the same tensor on another device has no note.
"""

from collections.abc import Mapping

import torch

_NOTE = "_tensorstash_scaled"  # an attribute of tensors: how often they had been written when they were scaled
_UNCOUNTED = -1  # of tensors of inference mode, whose writes torch does not count
_WRITTEN_SINCE = -2


def is_scaled(tensor: torch.Tensor) -> bool:
    """Whether a tensor is as a scaler left it. Torch counts the writes into a tensor, except those by numpy."""
    return getattr(tensor, _NOTE, None) == _writes(tensor)


def was_scaled(tensor: torch.Tensor) -> bool:
    """Whether a scaler has scaled a tensor and not scaled it back, whatever was written into it since."""
    return getattr(tensor, _NOTE, None) is not None


def note_scaled(tensor: torch.Tensor, *, scaled: bool) -> None:
    """Let `is_scaled` and `was_scaled` know that a tensor holds scaled values now, or raw ones."""
    if scaled or was_scaled(tensor):
        setattr(tensor, _NOTE, _writes(tensor) if scaled else None)


def noted(batch: dict[str, torch.Tensor], scaled: Mapping[str, bool]) -> dict[str, torch.Tensor]:
    """The batch, with a note on the spans that it has whether they are scaled."""
    for name, is_so in scaled.items():
        if name in batch:
            note_scaled(batch[name], scaled=is_so)
    return batch


def pass_note(source: torch.Tensor, target: torch.Tensor) -> None:
    """Let a tensor that was made of another one, or written anew, say of scaling what the other one says."""
    if was_scaled(source) and target is not source:
        setattr(target, _NOTE, _writes(target) if is_scaled(source) else _WRITTEN_SINCE)


def _writes(tensor: torch.Tensor) -> int:
    return _UNCOUNTED if tensor.is_inference() else tensor._version
