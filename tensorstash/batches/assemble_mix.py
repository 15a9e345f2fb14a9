"""Whole batches of a mix, as in `assemble.py`, but each window is located in its component."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.assemble import anchor_labels
from tensorstash.batches.buffers import Built, Recycled
from tensorstash.batches.staging import Staged
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.gather import static_values
from tensorstash.gather.mixed import by_component, mix_plan, select_mixed
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.steps import Layout, Steps


@dataclass(frozen=True, slots=True)
class _Group:
    """A few steps whose windows were located together."""

    count: int  # windows of each batch
    component: Int32s  # (steps, count)
    anchors: Int64s  # (steps, count) the slot of each window's anchor in its component
    entities: torch.Tensor | None  # (steps, count) numbered over all components, if there are static columns
    extras: dict[str, NDArray[Any]]  # (steps, count) each: other entries of the batches, such as ids


class MixAssembler:
    """Makes the batches of a loader over a mix."""

    def __init__(self, mix: Mix, memory: Recycled | Staged, *, with_ids: bool, with_valid: bool) -> None:
        self.mix = mix
        self.memory = memory
        self.with_ids = with_ids
        self.with_valid = with_valid
        self.windows = [*mix.windows.values()]
        plans = [windows._plan for windows in self.windows]
        self.plan = plans[0]
        self.gather = mix_plan(self.windows[0].spans, plans, [windows.stash for windows in self.windows])
        entities = [len(windows.stash.offsets) - 1 for windows in self.windows]
        self.first_entity = np.cumsum([0, *entities[:-1]])
        statics = [windows.stash.static for windows in self.windows]
        self.static = {name: torch.cat([static[name] for static in statics]) for name in statics[0]}

    def prepare(self, steps: Steps, layout: Layout, _: Lanes | None) -> _Group:
        """Compute where the windows of these steps are, and everything that follows from their ids alone."""
        shape = steps.ids.shape
        component, own = self.mix._of.split(steps.ids.reshape(-1))
        anchors, entities, labels = (np.empty_like(own) for _ in range(3))
        for k, which in by_component(component):
            windows = self.windows[k]
            slots = anchors[which] = windows._anchor_slots(own[which])
            if self.with_ids or self.static:
                entities[which] = windows._entities_of(slots)
            if self.with_ids:
                labels[which] = anchor_labels(windows, slots)
        extras: dict[str, NDArray[Any]] = {}
        if self.with_valid or layout.masked:
            extras["valid"] = np.tile(np.arange(shape[1]) < steps.valid, (shape[0], 1))
        if self.with_ids:
            ids = {"source": component.astype(np.int64), "window": own, "entity": entities, "anchor": labels}
            extras |= {name: values.reshape(shape) for name, values in ids.items()}
        every = torch.from_numpy((entities + self.first_entity[component]).reshape(shape)) if self.static else None
        return _Group(shape[1], component.reshape(shape), anchors.reshape(shape), every, extras)

    def portions(self, _: _Group, steps: int) -> Iterator[range]:
        """The steps of a group one by one, because `build` makes one batch at a time."""
        return (range(step, step + 1) for step in range(steps))

    def build(self, group: _Group, steps: range) -> list[Built]:
        """The batches of these steps. A batch on a device may still be being copied until its function was called."""
        return [self._built(group, step) for step in steps]

    def _built(self, group: _Group, step: int) -> Built:
        buffers = self.memory.take(group.count)
        rest = select_mixed(self.gather, group.component[step], group.anchors[step], buffers)
        if group.entities is not None:
            rest |= static_values(self.static, group.entities[step])
        for name, values in group.extras.items():
            rest[name] = torch.from_numpy(values[step].copy())  # a view would keep the values of all steps
        return self.memory.finish(buffers, rest)
