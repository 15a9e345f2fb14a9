"""Which tensors hold scaled values: each has a note on itself, because a batch is a plain dict of tensors.

Slices and copies of a tensor, also those on another device, have no note.
"""

from collections.abc import Mapping

import torch

_NOTE = "_tensorstash_scaled"  # an attribute of tensors: how often torch had written into them when they were scaled
_UNCOUNTED = -1  # for tensors made in inference mode: torch does not count writes into them
_WRITTEN_SINCE = -2  # no number of writes


def is_scaled(tensor: torch.Tensor) -> bool:
    """Whether a scaler has scaled a tensor and torch has not written into it since. Writes by numpy are not noticed."""
    return getattr(tensor, _NOTE, None) == _writes(tensor)


def was_scaled(tensor: torch.Tensor) -> bool:
    """Whether a scaler has scaled a tensor and not scaled it back, even if it has been written into since."""
    return getattr(tensor, _NOTE, None) is not None


def note_scaled(tensor: torch.Tensor, *, scaled: bool) -> None:
    """Mark a tensor as scaled or not."""
    if scaled or was_scaled(tensor):
        setattr(tensor, _NOTE, _writes(tensor) if scaled else None)


def noted(batch: dict[str, torch.Tensor], scaled: Mapping[str, bool]) -> dict[str, torch.Tensor]:
    """The batch, with those of the given spans that it has marked as scaled or not."""
    for name, is_so in scaled.items():
        if name in batch:
            note_scaled(batch[name], scaled=is_so)
    return batch


def pass_note(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy the note of a tensor to one that holds the same values, cast or moved."""
    if was_scaled(source) and target is not source:
        setattr(target, _NOTE, _writes(target) if is_scaled(source) else _WRITTEN_SINCE)


def _writes(tensor: torch.Tensor) -> int:
    return _UNCOUNTED if tensor.is_inference() else tensor._version
