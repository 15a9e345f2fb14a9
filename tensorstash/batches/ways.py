"""Which way windows are gathered on a device: by the Triton kernel where it works there, else by torch."""

from collections.abc import Sequence

import torch

from tensorstash.batches.on_device import DevicePlan, Way, by_torch

_COMPILED = ("cuda", "xpu")  # CUDA, ROCm and XPU, for which Triton compiles


def way_on(device: torch.device, samples: Sequence[tuple[DevicePlan, torch.Tensor]]) -> Way:
    """The way for a device; a few windows of these plans, with their anchors, prove that the kernel works there."""
    if device.type not in _COMPILED:
        return by_torch
    from tensorstash.batches import triton_gather  # Triton takes a quarter of a second to import

    proven = triton_gather.INSTALLED and all(_works(triton_gather.by_triton, *sample) for sample in samples)
    return triton_gather.by_triton if proven else by_torch


def _works(way: Way, plan: DevicePlan, anchors: torch.Tensor) -> bool:
    """Whether a way gathers what torch gathers."""
    try:
        found = way(plan, anchors).values
    # whatever a compiler, a driver and a launcher of another library may raise: torch gathers the same
    except Exception:
        return False
    return all(map(torch.equal, found, by_torch(plan, anchors).values))
