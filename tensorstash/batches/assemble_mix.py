"""Whole batches of a mix, as in `assemble.py`, but each window is located in its component."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.assemble import anchor_labels, portions
from tensorstash.batches.buffers import Batch, Built, Recycled
from tensorstash.batches.staging import Staged
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.gather import static_values
from tensorstash.gather.mixed import by_component, mix_plan, select_mixed
from tensorstash.native.guide import Guide, guide, locate
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.steps import Layout, Steps
from tensorstash.windows.plan import filling_of


@dataclass(frozen=True, slots=True)
class _Group:
    """A few steps whose windows were located together."""

    count: int  # windows of each batch
    component: Int32s  # (steps, count)
    anchors: Int64s  # (steps, count) the slot of each window's anchor in its component
    entities: torch.Tensor | None  # (steps, count) numbered over all components, if there are static columns
    extras: dict[str, NDArray[Any]]  # (steps, count) each: other entries of the batches, such as ids


@dataclass(frozen=True, slots=True)
class _Slots:
    """The intervals of all components as one sequence, so that windows of all are located by one look-up."""

    # of the windows of all components, one after the other; a base is the slot of the anchor of window 0 of the
    # component, if it lay in the interval
    pieces: Guide
    stride: Int64s  # (components,)

    def of(self, component: Int32s, flat: Int64s, own: Int64s) -> Int64s:
        """The slots of the anchors of windows, by their numbers among all and in their components."""
        slots = self.stride[component]
        slots *= own
        slots += locate(self.pieces, 0, flat)
        return slots


def _slots(mix: Mix) -> _Slots:
    windows = [*mix.windows.values()]
    before = np.cumsum(mix._of.sizes) - mix._of.sizes
    ends = np.concatenate([own._intervals.ends + first for own, first in zip(windows, before)])
    base = np.concatenate([own._intervals.base + own.history for own in windows])
    return _Slots(guide(np.stack([ends, base], 1)), np.array([own._intervals.stride for own in windows], np.int64))


class MixAssembler:
    """Makes the batches of a loader over a mix."""

    def __init__(self, mix: Mix, memory: Recycled | Staged, *, with_ids: bool, with_valid: bool) -> None:
        self.mix = mix
        self.memory = memory
        self.with_ids = with_ids
        self.with_valid = with_valid
        self.windows = [*mix.windows.values()]
        self.plan = self.windows[0]._plan
        self.gather = mix_plan(
            self.windows[0].spans,
            [windows.stash for windows in self.windows],
            [filling_of(windows._layout, windows.spans, windows._fills) for windows in self.windows],
            lambda k: self.windows[k]._plan,
        )
        self.slots = _slots(mix)
        entities = [len(windows.stash.offsets) - 1 for windows in self.windows]
        self.first_entity = np.cumsum([0, *entities[:-1]])
        statics = [windows.stash.static for windows in self.windows]
        self.static = {name: torch.cat([static[name] for static in statics]) for name in statics[0]}

    def prepare(self, steps: Steps, layout: Layout, _: Lanes | None) -> _Group:
        """Compute where the windows of these steps are, and everything that follows from their ids alone."""
        shape = steps.ids.shape
        component, own = self.mix._of.split(steps.ids.reshape(-1))
        anchors = self.slots.of(component, steps.ids.reshape(-1), own)
        entities, labels = np.empty_like(own), np.empty_like(own)
        for k, which in by_component(component) if self.with_ids or self.static else ():
            entities[which] = self.windows[k]._entities_of(anchors[which])
            if self.with_ids:
                labels[which] = anchor_labels(self.windows[k], anchors[which])
        extras: dict[str, NDArray[Any]] = {}
        if self.with_valid or layout.masked:
            extras["valid"] = np.broadcast_to(np.arange(shape[1]) < steps.valid, shape)
        if self.with_ids:
            ids = {"source": component.astype(np.int64), "window": own, "entity": entities, "anchor": labels}
            extras |= {name: values.reshape(shape) for name, values in ids.items()}
        every = torch.from_numpy((entities + self.first_entity[component]).reshape(shape)) if self.static else None
        return _Group(shape[1], component.reshape(shape), anchors.reshape(shape), every, extras)

    def portions(self, group: _Group, steps: int) -> Iterator[range]:
        """The steps of a group in portions, each of which one call of `build` makes."""
        return portions(self.memory, group.count * self.plan.window_bytes, steps)

    def build(self, group: _Group, steps: range) -> list[Built]:
        """The batches of these steps. A batch on a device may still be being copied until its function was called."""
        buffers, some = [self.memory.take(group.count) for _ in steps], slice(steps.start, steps.stop)
        rests = select_mixed(self.gather, group.component[some], group.anchors[some], buffers)
        return [self._built(group, step, own, rest) for step, own, rest in zip(steps, buffers, rests)]

    def _built(self, group: _Group, step: int, buffers: list[torch.Tensor], rest: Batch) -> Built:
        if group.entities is not None:
            rest |= static_values(self.static, group.entities[step])
        for name, values in group.extras.items():
            rest[name] = torch.from_numpy(values[step].copy())  # a view would keep the values of all steps
        return self.memory.finish(buffers, rest)
