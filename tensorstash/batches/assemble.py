"""Whole batches on the host: spans, `observed`, static columns, ids, `valid` and `reset`, all in one order.

Windows and mixes are made in the same way: windows are a mix of one. Small batches of a few steps
are made as one and cut into batches, because most of their cost is the time per call. A batch for a device is first
made completely on the host, and then all its tensors are sent together, so that none arrives later than others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.batches.buffers import Batch, Pending, Recycled, Sent, Staged
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.gather import select
from tensorstash.gather.rows import Stretches
from tensorstash.gather.span import draws_of
from tensorstash.native.permutation import Uint64s
from tensorstash.sampling.passes import Schedule
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Steps
from tensorstash.sampling.window_keys import draws, variate_keys, window_keys
from tensorstash.windows.located import Located
from tensorstash.windows.placement import Chain, Placement
from tensorstash.windows.time_spans import Candidates
from tensorstash.windows.variates import drawn_packs, variate_entries
from tensorstash.windows.windows import Windows

_MOST_TOGETHER = 16  # steps: more save hardly any time
_BYTES_TOGETHER = 1 << 19  # they stay in the L2 cache until the loop uses them
_BYTES_OF_CALL = 1 << 22  # for such a call its fixed time is little, and several threads share it
_MOST_PARTS = 8


def together(batch_bytes: int) -> int:
    """How many batches of that size are made together on the host, in one buffer."""
    return max(1, min(_MOST_TOGETHER, _BYTES_TOGETHER // batch_bytes))


def parts(batch_bytes: int) -> int:
    """How many buffers of such batches the kernel fills in one call."""
    return max(1, min(_MOST_PARTS, _BYTES_OF_CALL // (together(batch_bytes) * batch_bytes)))


@dataclass(frozen=True, slots=True)
class Group:
    """A few steps whose windows were located together, because numpy costs time per call."""

    steps: Steps
    located: Located  # arrays of (steps, batch)
    static_rows: Int64s | None  # (steps, batch) the rows of the static columns, if there are any
    extras: dict[str, NDArray[Any]]  # other entries of the batches, such as ids, (steps, batch) each
    skips: Int64s | None  # (steps, draws, batch) the slots that each `ts.Draw` leaves out, if there are any
    keys: dict[str, Uint64s]  # (steps, batch) hashes by which columns of packs are drawn, by pack

    @property
    def count(self) -> int:
        """Windows of each batch."""
        return self.steps.ids.shape[1]


class OnDevice(NamedTuple):
    """The integers of a group on their way to a device that holds the columns."""

    source: Int32s | None  # (steps, batch) on the host: the stash of each window, ascending in each step
    integers: Batch  # (steps * batch,) each, on the device
    sent: Sent


class Portion(NamedTuple):
    """Some steps of a group, whose batches are made in one call."""

    group: Group
    steps: range
    on_device: OnDevice | None = None  # for resident columns
    parts: int = 1  # on the host: how many, of as many steps each, have buffers of their own


class Assembler(Protocol):
    """Makes the batches of a loader."""

    def portions(self, groups: Iterator[Group]) -> Iterator[Portion]:
        """The steps of all groups, in portions."""

    def build(self, portion: Portion) -> list[Batch | Pending]:
        """The batches of a portion."""

    def copy_seconds(self) -> float:
        """Time so far in which `portions` and `build` waited for copies to a device, or made them."""


class Sampled:
    """What a loader samples: windows of one or several stashes, and the entries that follow from their ids alone."""

    def __init__(self, windows: Windows | Several, *, with_ids: bool, with_valid: bool) -> None:
        self.chain: Chain = windows.chain
        self._draws = draws_of(self.chain.placements[0].spans)
        self._packs = drawn_packs(self.chain.placements[0].spans)
        self._with_ids = with_ids
        self._with_valid = with_valid
        self._source: Int64s | None = None  # (placements,) the component number shown in batches
        self._first_entity = np.zeros(len(self.chain.placements), np.int64)  # the number of each stash's first entity
        if isinstance(windows, Several):
            self._source, self._first_entity = windows.numbers()

    def locate(self, steps: Steps, schedule: Schedule) -> Group:
        """Where the windows of these steps are, and everything that follows from their ids alone."""
        shape, chain = steps.ids.shape, self.chain
        located = chain.locate(steps.ids.reshape(-1))
        entities = chain.entities(located) if self._with_ids or chain.static else None
        extras: dict[str, NDArray[Any]] = {}
        if self._with_valid or schedule.layout.masked or schedule.order.has_filler:
            extras["valid"] = np.broadcast_to(np.arange(shape[1]) < steps.valid, shape)
        extras |= schedule.order.entries(steps, schedule.layout, chain, located.anchors.reshape(shape))
        if self._with_ids and entities is not None:
            extras |= {name: values.reshape(shape) for name, values in self._ids(located, entities).items()}
            extras["window.key"] = window_keys(schedule.seed, steps)
        extras |= {name: values.reshape(shape) for name, values in chain.labels(located).items()}
        rows = chain.static_rows(located, entities) if chain.static and entities is not None else None
        skips = self._skips(schedule.seed, steps)
        keys = {pack: variate_keys(schedule.seed, steps, pack) for pack in self._packs}
        return Group(
            steps, located.reshaped(*shape), None if rows is None else rows.reshape(shape), extras, skips, keys
        )

    def _skips(self, seed: int, steps: Steps) -> Int64s | None:
        drawn = [draws(seed, steps, k, len(draw)) * draw.step for k, draw in enumerate(self._draws)]
        return np.stack(drawn, 1) if drawn else None

    def _ids(self, located: Located, entities: Int64s) -> dict[str, Int64s]:
        numbers = {"window": self.chain.within(located), "entity": entities, "anchor": self.chain.moments(located)}
        if self._source is None:
            return numbers
        source = np.zeros_like(located.ids) if located.source is None else located.source
        return {"source": self._source[source]} | numbers | {"entity": entities + self._first_entity[source]}


class HostAssembler:
    """Gathers batches on the host, where they stay or are copied from."""

    def __init__(self, chain: Chain, memory: Recycled | Staged) -> None:
        self._chain = chain
        self._memory = memory
        self.copy_seconds = memory.copy_seconds

    def portions(self, groups: Iterator[Group]) -> Iterator[Portion]:
        """The steps of all groups, in portions."""
        on_host = isinstance(self._memory, Recycled)
        for group in groups:
            left, nbytes = range(len(group.steps.ids)), group.count * self._chain.window_bytes
            most = together(nbytes) if on_host else 1
            while left:
                count = max(1, min(parts(nbytes), len(left) // most)) if on_host else 1
                yield Portion(group, left[: count * most], parts=count)
                left = left[count * most :]

    def build(self, portion: Portion) -> list[Batch | Pending]:
        """The batches of a portion."""
        group, steps = portion.group, slice(portion.steps.start, portion.steps.stop)
        located = group.located.of(portion.steps)
        buffers = [self._memory.take(len(located.anchors) // portion.parts) for _ in range(portion.parts)]
        skips = None if group.skips is None else np.concatenate(group.skips[steps], 1)
        rows = self._chain.rows(located.anchors, self._chain.in_time(located), skips)
        observed = select(self._chain.plan, located.source, rows, buffers)
        batches: list[Batch | Pending] = []
        each = len(portion.steps) // portion.parts
        for first, filled, flags in zip(range(steps.start, steps.stop, each), buffers, observed):
            rest = flags | self._rest(group, slice(first, first + each))
            variates = [Batch()] * each
            if self._chain.variates:
                variates = [self._variates(group, step) for step in range(first, first + each)]
            batches += self._memory.finish(filled, rest, variates)
        return batches

    def _variates(self, group: Group, step: int) -> Batch:
        """The entries of spans of `ts.each` in the batch of a step."""
        located = group.located.of(range(step, step + 1))
        return variate_entries(
            self._chain.variates,
            located.source,
            located.anchors,
            None if group.skips is None else group.skips[step],
            {pack: of_pack[step] for pack, of_pack in group.keys.items()},
            self._memory.entries.take,
        )

    def _rest(self, group: Group, steps: slice) -> Batch:
        """The entries of some steps that are not gathered in windows."""
        rest: Batch = {}
        if group.static_rows is not None:
            rest = self._chain.static_values(group.static_rows[steps].reshape(-1))
        for name, values in group.extras.items():
            rest[name] = torch.from_numpy(values[steps].flatten())  # a view would keep the values of all steps
        return rest

    def anchors(self, portion: Portion) -> Iterator[tuple[Placement, tuple[Int64s, list[Stretches | Candidates]]]]:
        """The windows of a portion in each stash: the slots of their anchors, and their stretches of rows."""
        located = portion.group.located.of(portion.steps)
        for placement, which, _, anchors in self._chain.parts(located):
            yield placement, (anchors, [stretches.of(which) for stretches in located.stretches])
