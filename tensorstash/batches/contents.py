"""What a loader samples: the windows of a few steps, and the entries of their batches that follow from their ids alone.

Windows and mixes are sampled in the same way: windows are a mix of one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import draws_of
from tensorstash.native.permutation import Uint64s
from tensorstash.sampling.passes import Position, Schedule
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Steps
from tensorstash.sampling.window_keys import draws, variate_keys, window_keys
from tensorstash.windows.located import Located
from tensorstash.windows.placement import Chain
from tensorstash.windows.variates import drawn_packs
from tensorstash.windows.windows import Windows

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Group:
    """A few steps whose windows were located together, because numpy costs time per call.

    All arrays hold the windows of one step after those of the other, `(steps * batch,)`.
    """

    steps: Steps
    count: int  # windows of each batch
    located: Located
    static_rows: Int64s | None  # the rows of the static columns, if there are any
    extras: dict[str, NDArray[Any]]  # other entries of the batches, such as ids
    skips: Int64s | None  # (draws, steps * batch) the slots that each `ts.Draw` leaves out, if there are any
    keys: dict[str, Uint64s]  # hashes by which columns of packs are drawn, by pack

    def among(self, steps: range) -> slice:
        """Where the windows of consecutive steps stand."""
        return slice(steps.start * self.count, steps.stop * self.count)

    def skips_of(self, among: slice) -> Int64s | None:
        """The slots that windows leave out, `(draws, windows)`."""
        return None if self.skips is None else np.ascontiguousarray(self.skips[:, among])

    def keys_of(self, among: slice) -> dict[str, Uint64s]:
        """The hashes of windows, by pack."""
        return {pack: keys[among] for pack, keys in self.keys.items()}


# some steps of a group that are made in one call, and how many buffers their batches share
Portion = tuple[Group, range, int]


class Contents:
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

    def groups(self, schedule: Schedule, start: Position) -> Iterator[Group]:
        """The steps of a pass, located a few at a time."""
        return (self.locate(steps, schedule) for steps in schedule.groups(start))

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
            extras |= self._ids(located, entities)
            extras["window.key"] = window_keys(schedule.seed, steps)
        extras |= chain.labels(located)
        return Group(
            steps,
            shape[1],
            located,
            chain.static_rows(located, entities) if chain.static and entities is not None else None,
            {name: values.reshape(-1) for name, values in extras.items()},
            self._skips(schedule.seed, steps),
            {pack: variate_keys(schedule.seed, steps, pack).reshape(-1) for pack in self._packs},
        )

    def _skips(self, seed: int, steps: Steps) -> Int64s | None:
        drawn = [draws(seed, steps, k, len(draw)).reshape(-1) * draw.step for k, draw in enumerate(self._draws)]
        return np.stack(drawn) if drawn else None

    def _ids(self, located: Located, entities: Int64s) -> dict[str, Int64s]:
        numbers = {"window": self.chain.within(located), "entity": entities, "anchor": self.chain.moments(located)}
        if self._source is None:
            return numbers
        source = np.zeros_like(located.ids) if located.source is None else located.source
        return {"source": self._source[source]} | numbers | {"entity": entities + self._first_entity[source]}
