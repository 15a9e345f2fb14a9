"""Whole batches gathered on a device, from columns that lie there.

The host computes which windows a few steps hold, and what follows from their ids, and sends these integers ahead. The
values are gathered in the thread and the stream of the loop, when it asks for a batch: they wait for nothing but the
integers, and their memory belongs to the stream that uses it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from tensorstash.batches.assemble import Assembler, Group
from tensorstash.batches.assemble_mix import MixAssembler
from tensorstash.batches.assemble_sharded import ShardedAssembler
from tensorstash.batches.buffers import Batch, Built
from tensorstash.batches.devices import Copies
from tensorstash.batches.on_device import DevicePlan, Gathered, device_plan, tensors_of
from tensorstash.batches.resident import resident
from tensorstash.batches.staging import Sent, Staging
from tensorstash.batches.ways import way_on
from tensorstash.common.dtypes import Int32s, Int64s, as_integers
from tensorstash.common.forks import check_threads
from tensorstash.gather.empty import rows_of
from tensorstash.sampling.order import Lanes
from tensorstash.sampling.steps import Layout, Steps
from tensorstash.windows.windows import Windows

Host = Assembler | MixAssembler | ShardedAssembler

_GROUPS = 2  # one whose integers are copied, and one whose steps are being taken


@dataclass(frozen=True, slots=True)
class _Group:
    """A few steps whose integers are on their way to the device, `(steps * count,)` each."""

    count: int  # windows of each batch
    component: Int32s | None  # (steps, count) of a mix, ascending in each step
    slots: Int64s  # (steps, count) the slots of the anchors, in that order
    sent: Batch  # the same on the device, and the other integers, by the names below or those of the batch
    extras: Sequence[str]  # which of them are entries of the batches
    arrive: Callable[[], None]  # called before any of them is used


# names that no entry of a batch has
_SLOTS, _PLACES, _ENTITIES = ".slots", ".places", ".entities"


@dataclass(frozen=True, slots=True)
class _Piece:
    """The windows of one step that are of one component: a range of the order of `_Group.slots`."""

    component: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Computed:
    """Values of empty slots in one span of one piece, which the host has computed, on their way to the device."""

    piece: int
    span: int
    at: torch.Tensor  # (slots,) int64, among all slots of the span in the piece
    values: torch.Tensor  # (slots, items of a row)


@dataclass(frozen=True, slots=True)
class _Step:
    """What a batch is gathered from."""

    group: _Group
    at: slice  # of its windows in the group
    pieces: list[_Piece]
    computed: list[_Computed]
    arrive: Callable[[], None] | None  # called before computed values are used, if there are any


class ResidentAssembler:
    """Makes the batches of a loader whose columns lie on its device."""

    def __init__(self, host: Host, device: torch.device, copies: Copies, stages: int) -> None:
        """`host` locates the windows; `stages` is how many batches may be made before the loop has taken them."""
        self._host = host
        self._windows = [host.windows] if isinstance(host, Assembler) else host.windows
        device = torch.empty(0, device=device).device  # with its number
        needed = [(own.stash, [span.column for span in own.spans]) for own in self._windows]
        held = resident(needed, device)
        self._parts = [device_plan(own, columns, device) for own, columns in zip(self._windows, held)]
        self._filled = any(part.fragments is not None for part in self._parts)
        self._static = {name: as_integers(tensor).to(device, copy=True) for name, tensor in host.static.items()}
        self._way = way_on(device, [*_samples(self._windows, self._parts)])
        # columns may be freed with the loader, when the device still gathers from them
        used = [one for part in self._parts for one in tensors_of(part)] + [*self._static.values()]
        self._memory = [*{one.untyped_storage().data_ptr(): one for one in used}.values()]
        self.plan = host.plan
        self.memory = Staging(copies, _GROUPS)
        self._values = Staging(copies, stages)  # of computed slots

    def prepare(self, steps: Steps, layout: Layout, lanes: Lanes | None) -> _Group:
        """Compute where the windows of these steps are, and everything that follows from their ids, and send it."""
        host = self._host.prepare(steps, layout, lanes)
        component: Int32s | None = None
        integers = dict(host.extras)
        if isinstance(host, Group):
            slots = host.places.anchors
        else:
            order = np.argsort(host.component, axis=1, kind="stable")
            component = np.take_along_axis(host.component, order, 1)
            slots = np.take_along_axis(host.anchors, order, 1)
            integers[_PLACES] = np.argsort(order, axis=1)
        integers[_SLOTS] = slots
        if host.entities is not None:
            integers[_ENTITIES] = host.entities.numpy()
        self.memory.begin()
        # a copy, because some are read-only views of one row
        flat = {name: torch.from_numpy(np.array(some).reshape(-1)) for name, some in integers.items()}
        sent, arrive = _send(self.memory, [*flat.values()], self._memory)
        return _Group(host.count, component, slots, dict(zip(flat, sent)), [*host.extras], arrive)

    def portions(self, _: _Group, steps: int) -> Iterator[range]:
        """The steps of a group one by one: each batch is gathered when the loop asks for it."""
        return (range(step, step + 1) for step in range(steps))

    def build(self, group: _Group, steps: range) -> list[Built]:
        """The batches of these steps, which are empty until their functions were called."""
        return [self._built(group, step) for step in steps]

    def _built(self, group: _Group, step: int) -> Built:
        pieces = _pieces(group, step)
        computed, arrive = self._computed(pieces, group.slots[step])
        batch: Batch = {}
        own = _Step(group, slice(step * group.count, (step + 1) * group.count), pieces, computed, arrive)
        return batch, partial(self._fill, batch, own)

    def _fill(self, batch: Batch, step: _Step) -> None:
        """Gather the batch; called by the loop, in its thread."""
        if self._memory[0].is_cpu:
            check_threads()
        step.group.arrive()
        if step.arrive is not None:
            step.arrive()
        own = {name: sent[step.at] for name, sent in step.group.sent.items()}
        gathered = [self._way(self._parts[one.component], own[_SLOTS][one.begin : one.end]) for one in step.pieces]
        for some in step.computed:
            values = gathered[some.piece].values[some.span]
            values.view(-1, values.shape[2]).index_copy_(0, some.at, some.values)
        self._name(batch, gathered[0] if _PLACES not in own else self._joined(gathered, own[_PLACES]))
        for name, tensor in self._static.items():
            dtype = self._host.static[name].dtype
            values = tensor.index_select(0, own[_ENTITIES])
            batch[name] = values if values.dtype == dtype else values.view(dtype)
        for name in step.group.extras:
            batch[name] = own[name].clone()  # a view would keep the values of all steps

    def _name(self, batch: Batch, gathered: Gathered) -> None:
        windows, part = self._windows[0], self._parts[0]
        for span, values in zip(windows.spans, gathered.values):
            column = windows.stash[span.column]
            typed = values if values.dtype == column.dtype else values.view(column.dtype)
            batch[span.name] = typed.view(*values.shape[:2], *column.shape[1:])
        if gathered.observed is not None:
            for span, own in zip(windows.spans, part.spans):
                batch[f"{span.name}.observed"] = gathered.observed[own.slots]

    def _joined(self, pieces: list[Gathered], places: torch.Tensor) -> Gathered:
        """The windows of all components, in the order of the batch."""
        values = [torch.cat(own).index_select(0, places) for own in zip(*(piece.values for piece in pieces))]
        if not self._filled:
            return Gathered(values, None)
        seen = [piece.observed or _all_there(self._parts[0], piece) for piece in pieces]
        return Gathered(values, [torch.cat(own).index_select(0, places) for own in zip(*seen)])

    def _computed(self, pieces: list[_Piece], slots: Int64s) -> tuple[list[_Computed], Callable[[], None] | None]:
        """The values of empty slots that are computed, such as those of `ts.calendar`, on their way to the device."""
        found = [
            (number, span, at, values)
            for number, piece in enumerate(pieces)
            for span, at, values in _empty(self._windows[piece.component], slots[piece.begin : piece.end])
        ]
        if not found:
            return [], None
        self._values.begin()
        sent, arrive = _send(self._values, [tensor for one in found for tensor in one[2:]])
        pairs = zip(found, sent[::2], sent[1::2])
        return [_Computed(number, span, at, values) for (number, span, *_), at, values in pairs], arrive


def _samples(windows: Sequence[Windows], parts: Sequence[DevicePlan]) -> Iterator[tuple[DevicePlan, torch.Tensor]]:
    """A plan with empty slots and one without, as there are, and the slots of a few anchors in each."""
    kinds = {part.fragments is None: (own, part) for own, part in zip(windows, parts) if len(own)}
    for own, part in kinds.values():
        slots = own._anchor_slots(np.array([0, len(own) - 1]))
        yield part, torch.from_numpy(slots).to(part.relative[0].device)


def _send(staging: Staging, tensors: list[torch.Tensor], beside: Sequence[torch.Tensor] = ()) -> Sent:
    staged = [staging.part(k, one.shape, one.dtype).copy_(one) for k, one in enumerate(tensors)]
    return staging.send(staged, beside)


def _pieces(group: _Group, step: int) -> list[_Piece]:
    if group.component is None:
        return [_Piece(0, 0, group.count)]
    component = group.component[step]
    edges = [0, *(np.flatnonzero(np.diff(component)) + 1).tolist(), len(component)]
    return [_Piece(int(component[begin]), begin, end) for begin, end in pairwise(edges)]


def _all_there(plan: DevicePlan, piece: Gathered) -> list[torch.Tensor]:
    """The `observed` of windows without an empty slot."""
    like = piece.values[0]
    return [torch.ones(len(like), len(slots), dtype=torch.bool, device=like.device) for slots in plan.slots]


def _empty(windows: Windows, slots: Int64s) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """For each span with computed values, its number, the empty slots among those of all windows, and the values."""
    filling = windows._plan.filling
    if filling is None or not filling.computed:
        return
    rows = rows_of(filling, slots)
    for number, span in enumerate(windows.spans):
        compute = filling.computed.get(span.column)
        if compute is not None:
            own = rows[:, filling.history + span.begin : filling.history + span.end : span.step]
            window, at = np.nonzero(own < 0)
            if len(window):
                values = compute(slots[window] + span.begin + at * span.step)
                yield number, torch.from_numpy(window * own.shape[1] + at), values
