"""The seam between batches and a device: four operations, for devices with streams and for those without.

The host fills staging memory (`stage`), a copy of it begins (`copy`), an event marks its end (`record`), and the loop's
stream waits for the event before it uses the copy (`wait`).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tensorstash.common.checks import shown

_PROBE = 64  # bytes
# torch raises these for a device that is not there, and for operations that a device lacks
_FAILURES = (RuntimeError, AssertionError, AttributeError, TypeError, ImportError)


class Event(Protocol):
    """A point in the work of a stream."""

    def synchronize(self) -> None:
        """Let the host wait until the work before it is done."""


class Copies(Protocol):
    """Copies from the host to one device."""

    def stage(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised host memory, which a copy may read until the event after it is done."""

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Begin to copy staged tensors; the returned tensors on the device must not be used before `wait`."""

    def record(self) -> Event | None:
        """The event at which all copies begun so far are done; `None` if they are."""

    def wait(self, event: Any, copied: Sequence[torch.Tensor]) -> None:
        """Let the current stream of the calling thread wait for an event; then the copies before it may be used.

        The memory of the copies is not reused before the work queued in this stream is done.
        """


class StreamCopies:
    """Copies from pinned memory on a stream of their own, while the model computes: CUDA, ROCm, XPU."""

    def __init__(self, device: torch.device) -> None:
        # torch.cuda and torch.xpu have equal streams and events, also where torch.accelerator does not exist yet
        self._module = module_of(device)
        self._device = device if device.index is not None else torch.device(device.type, self._module.current_device())
        self._stream = self._module.Stream(self._device)

    def stage(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Pinned memory."""
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Queue the copies in the separate stream."""
        with self._module.stream(self._stream):
            return [tensor.to(self._device, non_blocking=True) for tensor in staged]

    def record(self) -> Event:
        """An event after the copies queued so far."""
        event: Event = self._module.Event()
        event.record(self._stream)  # type: ignore[attr-defined]
        return event

    def wait(self, event: Any, copied: Sequence[torch.Tensor]) -> None:
        """Queue the waiting in the current stream, and tell the allocator that this stream uses the memory."""
        stream = self._module.current_stream(self._device)
        stream.wait_event(event)
        for tensor in copied:
            tensor.record_stream(stream)


class PlainCopies:
    """Copies that are done when the call returns, for devices without streams."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stage(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Plain memory."""
        return torch.empty(tuple(shape), dtype=dtype)

    def copy(self, staged: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy, on the CPU too, because staged memory is filled again."""
        return [tensor.to(self._device, copy=True) for tensor in staged]

    def record(self) -> Event | None:
        """No event, because no copy is under way."""

    def wait(self, event: Any, copied: Sequence[torch.Tensor]) -> None:
        """There is nothing to wait for."""


def module_of(device: torch.device) -> Any:
    """The part of torch for the devices of a type: `torch.cuda`, `torch.xpu`, `torch.mps`, or that of a back-end."""
    return getattr(torch, device.type)


def device_of(device: str | torch.device | None) -> torch.device:
    """The device that an argument `device=` names; `"accelerator"` is what torch finds here, else the CPU."""
    if device is None:
        return torch.device("cpu")
    if isinstance(device, str) and device == "accelerator":
        return _accelerator()
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f'device must be a torch.device, its name ("cpu", "cuda:1"), "accelerator" or None, got {shown(device)}.'
        ) from error


def _accelerator() -> torch.device:
    if not hasattr(torch, "accelerator"):  # before torch 2.6
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if device is None else device


def copies_to(device: torch.device) -> Copies | None:
    """How batches get to a device, `None` for the CPU; a few bytes that go there and back prove that it works."""
    if device.type == "cpu":
        return None
    why = ""
    for kind in (StreamCopies, PlainCopies):
        try:
            copies: Copies = kind(device)
            if device.type == "meta" or _arrives(copies):  # the meta device holds no bytes
                return copies
            why = "bytes that were copied to it came back changed"
        except _FAILURES as error:  # noqa: PERF203  there are two kinds
            why = str(error).partition("\n")[0].rstrip(".")
    raise ValueError(
        f'device={str(device)!r} cannot be used on this machine: {why}. Write device="accelerator" for the device that '
        "torch finds here, else the CPU."
    )


def _arrives(copies: Copies) -> bool:
    """Whether bytes that are copied to the device come back as they were."""
    sent = copies.stage((_PROBE,), torch.uint8)
    sent.copy_(torch.arange(_PROBE, dtype=torch.uint8))
    copied = copies.copy([sent])
    copies.wait(copies.record(), copied)
    return copied[0].cpu().tolist() == list(range(_PROBE))
