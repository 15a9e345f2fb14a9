"""Whole batches: spans, `observed`, static columns, ids, `valid` and `reset`, on the host or on a device.

Small batches of a few steps are made together on the host, each in memory of its own, because most of their cost is the
time per call. A batch is first made completely on the host, and then all its tensors are sent together, so that no
tensor can arrive later than the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.buffers import Batch, Built, Recycled
from tensorstash.batches.staging import Staged, Staging
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.gather.gather import GatherPlan, Places, positions, select, static_values
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.steps import Layout, Steps
from tensorstash.windows.layout import label_rows, label_times
from tensorstash.windows.slots import run_edges
from tensorstash.windows.windows import Windows

_MOST_TOGETHER = 16  # steps: more save hardly any time
_BYTES_TOGETHER = 1 << 19  # they stay in the L2 cache until the loop uses them


def together(batch_bytes: int) -> int:
    """How many batches of that size are made together on the host."""
    return max(1, min(_MOST_TOGETHER, _BYTES_TOGETHER // batch_bytes))


def portions(memory: Recycled | Staged, batch_bytes: int, steps: int) -> Iterator[range]:
    """So many steps in portions that are made together."""
    most = together(batch_bytes) if isinstance(memory, Recycled) else 1
    return (range(first, min(first + most, steps)) for first in range(0, steps, most))


class AnyAssembler(Protocol):
    """Makes batches of windows or of a mix."""

    plan: GatherPlan

    @property
    def memory(self) -> Recycled | Staged | Staging:
        """Where batches, or what they are gathered by, lie on the host."""

    def prepare(self, steps: Steps, layout: Layout, lanes: Lanes | None) -> Any:
        """Locate the windows of a few steps together."""

    def portions(self, group: Any, steps: int) -> Iterator[range]:
        """The steps of a group, as they are to be built together."""

    def build(self, group: Any, steps: range) -> list[Built]:
        """The batches of some of them."""


class Portion(NamedTuple):
    """Some steps of a group, which are built together."""

    steps: Steps
    group: Any
    some: range


def located(assembler: AnyAssembler, groups: Iterator[Steps], layout: Layout, lanes: Lanes | None) -> Iterator[Portion]:
    """The steps of a pass in portions, their windows located."""
    for steps in groups:
        group = assembler.prepare(steps, layout, lanes)
        for some in assembler.portions(group, len(steps.ids)):
            yield Portion(steps, group, some)


@dataclass(frozen=True, slots=True)
class Group:
    """A few steps whose places and ids were computed together, because numpy costs time per call."""

    count: int  # windows of each batch
    places: Places  # where the windows of each step are
    entities: torch.Tensor | None  # (steps, count), if there are static columns
    extras: dict[str, NDArray[Any]]  # (steps, count) each: other entries of the batches, such as ids


class Assembler:
    """Makes the batches of a loader."""

    def __init__(self, windows: Windows, memory: Recycled | Staged, *, with_ids: bool, with_valid: bool) -> None:
        self.windows = windows
        self.memory = memory
        self.with_ids = with_ids
        self.with_valid = with_valid
        self.plan = windows._plan
        self.static = windows.stash.static

    def prepare(self, steps: Steps, layout: Layout, lanes: Lanes | None) -> Group:
        """Compute where the windows of these steps are, and everything that follows from their ids alone."""
        windows, count = self.windows, steps.ids.shape[1]
        anchors = windows._anchor_slots(steps.ids)
        extras: dict[str, NDArray[Any]] = {}
        if self.with_valid or layout.masked:
            extras["valid"] = np.broadcast_to(np.arange(count) < steps.valid, steps.ids.shape)
        if lanes is not None:
            extras["reset"] = _resets(windows, lanes, layout, steps, anchors)
        if self.with_ids:
            extras["window"] = steps.ids
            extras["entity"] = windows._entities_of(anchors)
            extras["anchor"] = anchor_labels(windows, anchors)
        entities = torch.from_numpy(windows._entities_of(anchors)) if self.static else None
        return Group(count, positions(self.plan, anchors), entities, extras)

    def portions(self, group: Group, steps: int) -> Iterator[range]:
        """The steps of a group in portions, each of which one call of `build` makes."""
        return portions(self.memory, group.count * self.plan.window_bytes, steps)

    def build(self, group: Group, steps: range) -> list[Built]:
        """The batches of these steps. A batch on a device may still be being copied until its function was called."""
        buffers = [self.memory.take(group.count) for _ in steps]
        rests = select(self.plan, group.places, steps, buffers)
        return [self._built(group, step, own, rest) for step, own, rest in zip(steps, buffers, rests)]

    def needed(self, group: Group, steps: range) -> Iterator[tuple[Windows, Int64s]]:
        """The windows that these steps hold, and the slots of their anchors."""
        yield self.windows, group.places.anchors[steps.start : steps.stop].reshape(-1)

    def _built(self, group: Group, step: int, buffers: list[torch.Tensor], rest: Batch) -> Built:
        if group.entities is not None:
            rest |= static_values(self.static, group.entities[step])
        for name, values in group.extras.items():
            rest[name] = torch.from_numpy(values[step].copy())  # a view would keep the values of all steps
        return self.memory.finish(buffers, rest)


def anchor_labels(windows: Windows, anchors: Int64s) -> Int64s:
    """The anchor time of each window, or without a time column the row of its anchor."""
    times = label_times(windows._layout, anchors)
    return label_rows(windows._layout, anchors) if times is None else times


def _resets(windows: Windows, lanes: Lanes, layout: Layout, steps: Steps, anchors: Int64s) -> Bools:
    """Whether each window does not continue the window in the same row of the previous batch, `(steps, batch)`."""
    lane, at = lanes.places(len(windows), steps.ids)
    row = np.arange(steps.ids.shape[1])
    before = windows._anchor_slots(np.maximum(steps.ids - 1, 0))
    runs, _ = run_edges(windows._layout.slots)
    start, start_before = (np.searchsorted(runs, slots - windows.history, "right") for slots in (anchors, before))
    goes_on = (anchors - before == windows.stride) & (start == start_before)
    same_row = lane == layout.rank * layout.batch_size + row
    return (at == 0) | ~goes_on | ~same_row | (row >= steps.valid)
