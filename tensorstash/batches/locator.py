"""What a loader samples: the windows of a few steps, and the entries of their batches that follow from their ids alone.

Windows and mixes are sampled in the same way: windows are a mix of one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import draws_of
from tensorstash.sampling.passes import Schedule
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Steps
from tensorstash.sampling.window_keys import draws, variate_keys, window_keys
from tensorstash.windows.chain import Located
from tensorstash.windows.variate_rows import drawn_packs
from tensorstash.windows.windows import Windows


class Locator:
    """Finds windows of one or several stashes, and the entries of their batches that follow from their ids alone."""

    def __init__(self, windows: Windows | Several, *, with_ids: bool, with_valid: bool) -> None:
        self.contents = windows.contents
        placements = windows.contents.chain.placements
        self._draws = draws_of(placements[0].spans)
        self._packs = drawn_packs(placements[0].spans)
        self._with_ids = with_ids
        self._with_valid = with_valid
        self._source: Int64s | None = None  # (placements,) the component number shown in batches
        self._first_entity = np.zeros(len(placements), np.int64)  # the number of each stash's first entity
        if isinstance(windows, Several):
            self._source, self._first_entity = windows.numbers

    def locate(self, steps: Steps, schedule: Schedule) -> Located:
        """The windows of these steps, one step after the other, and everything that follows from their ids alone."""
        shape, chain = steps.ids.shape, self.contents.chain
        located = chain.locate(steps.ids.reshape(-1))
        entities = chain.entities(located) if self._with_ids or self.contents.static else None
        entries: dict[str, NDArray[Any]] = {}
        if self._with_valid or schedule.layout.masked or schedule.order.has_filler:
            entries["valid"] = np.broadcast_to(np.arange(shape[1]) < steps.valid, shape)
        entries |= schedule.order.entries(steps, schedule.layout, chain, located.anchors.reshape(shape))
        if self._with_ids and entities is not None:
            entries |= self._ids(located, entities)
            entries["window.key"] = window_keys(schedule.seed, steps)
        return located._replace(
            skips=self._skips(schedule.seed, steps),
            keys={pack: variate_keys(schedule.seed, steps, pack).reshape(-1) for pack in self._packs},
            static_rows=chain.static_rows(located, entities) if self.contents.static and entities is not None else None,
            entries={name: values.reshape(-1) for name, values in entries.items()} | chain.labels(located),
        )

    def _skips(self, seed: int, steps: Steps) -> Int64s | None:
        drawn = [draws(seed, steps, k, len(draw)).reshape(-1) * draw.step for k, draw in enumerate(self._draws)]
        return np.stack(drawn, 1) if drawn else None

    def _ids(self, located: Located, entities: Int64s) -> dict[str, Int64s]:
        chain = self.contents.chain
        numbers = {"window": chain.within(located), "entity": entities, "anchor": chain.moments(located)}
        if self._source is None:
            return numbers
        source = np.zeros_like(located.ids) if located.source is None else located.source
        return {"source": self._source[source]} | numbers | {"entity": entities + self._first_entity[source]}
