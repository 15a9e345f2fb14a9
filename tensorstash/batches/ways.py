"""Which way windows are gathered on a device: by the Triton kernel where it works there, else by torch."""

import torch

from tensorstash.batches import triton_gather
from tensorstash.batches.on_device import DevicePlan, DeviceSpan, Way, by_torch

_COMPILED = ("cuda", "xpu")  # CUDA, ROCm and XPU, for which Triton compiles


def way_on(device: torch.device) -> Way:
    """The way for a device; a few values that the kernel gathers there prove that it works."""
    return triton_gather.by_triton if device.type in _COMPILED and kernel_works(device) else by_torch


def kernel_works(device: torch.device) -> bool:
    """Whether the kernel is there and gathers what torch gathers."""
    if not triton_gather.INSTALLED:
        return False
    items = torch.arange(64, dtype=torch.int32, device=device).view(32, 2)
    slots = range(-2, 3)
    relative = torch.tensor([*slots], device=device)
    plan = DevicePlan((DeviceSpan(items, items.new_zeros(1), 0),), (slots,), (relative,), None)
    anchors = torch.tensor([2, 29, 7], device=device)
    try:
        found = triton_gather.by_triton(plan, anchors).values[0]
        return torch.equal(found, by_torch(plan, anchors).values[0])
    # whatever a compiler, a driver and a launcher of another library may raise: torch gathers the same
    except Exception:
        return False
