"""Which way windows are gathered on a device: by the Triton kernel where it works there, else by torch."""

from collections.abc import Sequence

import torch

from tensorstash.batches import triton_gather
from tensorstash.batches.on_device import DevicePlan, Way, by_torch

_COMPILED = ("cuda", "xpu")  # CUDA, ROCm and XPU, for which Triton compiles


def way_on(device: torch.device, samples: Sequence[tuple[DevicePlan, torch.Tensor]]) -> Way:
    """The way for a device; a few windows of these plans, with their anchors, prove that the kernel works there."""
    compiled = device.type in _COMPILED and triton_gather.INSTALLED
    return triton_gather.by_triton if compiled and all(_works(*sample) for sample in samples) else by_torch


def _works(plan: DevicePlan, anchors: torch.Tensor) -> bool:
    """Whether the kernel gathers what torch gathers."""
    try:
        found = triton_gather.by_triton(plan, anchors).values
    # whatever a compiler, a driver and a launcher of another library may raise: torch gathers the same
    except Exception:
        return False
    return all(map(torch.equal, found, by_torch(plan, anchors).values))
