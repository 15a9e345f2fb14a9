"""The device of a benchmark: what it is called, and waiting for it."""

import torch

from tensorstash.batches.devices import module_of


def name_of(device: torch.device) -> str:
    """What its maker calls it, `""` for the CPU."""
    if device.type == "cpu":
        return ""
    return str(module_of(device).get_device_name(device)) if device.type in ("cuda", "xpu") else device.type


def wait_for(device: torch.device) -> None:
    """Let the host wait until the device has done all that was queued."""
    if device.type != "cpu":
        module_of(device).synchronize()
