"""Which tensors hold scaled values: a mark on the tensor itself, because a batch is a plain dict of tensors.

Slices, copies and tensors moved to another device have no mark.
"""

from collections.abc import Mapping

import torch

_NOTE = "_tensorstash_scaled"  # an attribute of tensors: how often they had been written when they were scaled
_UNCOUNTED = -1  # for tensors of inference mode, whose writes torch does not count
_WRITTEN_SINCE = -2


def is_scaled(tensor: torch.Tensor) -> bool:
    """Whether a tensor is as a scaler left it. Torch counts the writes into a tensor, except those by numpy."""
    return getattr(tensor, _NOTE, None) == _writes(tensor)


def was_scaled(tensor: torch.Tensor) -> bool:
    """Whether a scaler has scaled a tensor and not scaled it back, whatever was written into it since."""
    return getattr(tensor, _NOTE, None) is not None


def note_scaled(tensor: torch.Tensor, *, scaled: bool) -> None:
    """Mark a tensor as scaled or as not scaled."""
    if scaled or was_scaled(tensor):
        setattr(tensor, _NOTE, _writes(tensor) if scaled else None)


def noted(batch: dict[str, torch.Tensor], scaled: Mapping[str, bool]) -> dict[str, torch.Tensor]:
    """Mark spans of a batch as scaled or not, and return the batch."""
    for name, is_so in scaled.items():
        if name in batch:
            note_scaled(batch[name], scaled=is_so)
    return batch


def pass_note(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy the mark of a tensor to one that was computed from it, or rewritten in place."""
    if was_scaled(source) and target is not source:
        setattr(target, _NOTE, _writes(target) if is_scaled(source) else _WRITTEN_SINCE)


def _writes(tensor: torch.Tensor) -> int:
    return _UNCOUNTED if tensor.is_inference() else tensor._version
