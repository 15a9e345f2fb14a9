"""Staging memory: all tensors of a batch are copied to the device from here."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from tensorstash.batches.buffers import Sent
from tensorstash.batches.devices import Copies, Event
from tensorstash.gather.gather import GatherPlan


@dataclass(slots=True)
class _Stage:
    """The staging memory of one batch: a tensor for each of its parts, at least as long as the part."""

    parts: list[torch.Tensor] = field(default_factory=list)
    copied: Event | None = None  # the event of the last copy out of this memory


class Staged:
    """Memory of batches that go to a device.

    Staging memory is never handed out, and is filled again only after the event of its last copy.
    """

    def __init__(self, plan: GatherPlan, copies: Copies, stages: int) -> None:
        """`stages` is how many batches may be filled or copied at a time."""
        self._groups = plan.groups
        self._copies = copies
        self._stages = deque(_Stage() for _ in range(stages))

    def take(self, count: int) -> list[torch.Tensor]:
        """A staging buffer for each group of spans in a batch of `count` windows."""
        stage = self._stages[0]
        if stage.copied is not None:
            stage.copied.synchronize()
        return [self._part(k, group.buffer_shape(count), group.view.dtype) for k, group in enumerate(self._groups)]

    def send(self, buffers: Sequence[torch.Tensor], rest: Mapping[str, torch.Tensor]) -> Sent:
        """Begin to copy the filled buffers and the other tensors of a batch, all in the same way."""
        staged = [*buffers]
        for tensor in rest.values():
            staged.append(self._part(len(staged), tensor.shape, tensor.dtype).copy_(tensor))
        copied = self._copies.copy(staged)
        event = self._stages[0].copied = self._copies.record()
        self._stages.rotate(-1)
        first = len(buffers)
        return copied[:first], dict(zip(rest, copied[first:])), partial(self._copies.wait, event, copied)

    def _part(self, k: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Part k of the present stage for a tensor of that shape; batches differ in their number of rows only."""
        parts = self._stages[0].parts
        if k == len(parts):
            parts.append(self._copies.stage(shape, dtype))
        elif len(parts[k]) < shape[0]:
            parts[k] = self._copies.stage(shape, dtype)
        return parts[k][: shape[0]]
