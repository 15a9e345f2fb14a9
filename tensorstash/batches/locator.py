"""What a loader samples: the windows of a few steps, and the entries of their batches that follow from their ids alone.

Windows and mixes are sampled in the same way: windows are a mix of one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import Draw
from tensorstash.sampling.passes import Schedule
from tensorstash.sampling.several import Several
from tensorstash.sampling.steps import Steps
from tensorstash.sampling.window_keys import draws, variate_keys, window_keys
from tensorstash.windows.chain import Located
from tensorstash.windows.windows import Windows


def locate(
    windows: Windows | Several, steps: Steps, schedule: Schedule, *, with_ids: bool, with_valid: bool
) -> Located:
    """The windows of these steps, one step after the other, and everything that follows from their ids alone."""
    shape, contents, chain = steps.ids.shape, windows.contents, windows.contents.chain
    located = chain.locate(steps.ids.reshape(-1))
    entities = chain.entities(located) if with_ids or contents.static else None
    entries: dict[str, NDArray[Any]] = {}
    if with_valid or schedule.layout.has_filler or schedule.order.has_filler:
        entries["valid"] = np.broadcast_to(np.arange(shape[1]) < steps.valid, shape)
    entries |= schedule.order.entries(steps, schedule.layout, chain, located.anchors.reshape(shape))
    if with_ids and entities is not None:
        entries |= _ids(windows, located, entities)
        entries["window.key"] = window_keys(schedule.seed, steps)
    return located._replace(
        skips=_skips(contents.draws, schedule.seed, steps),
        keys={pack: variate_keys(schedule.seed, steps, pack).reshape(-1) for pack in contents.drawn_packs},
        static_rows=chain.static_rows(located, entities) if contents.static and entities is not None else None,
        entries={name: values.reshape(-1) for name, values in entries.items()} | chain.labels(located),
    )


def _skips(drawn: Sequence[Draw], seed: int, steps: Steps) -> Int64s | None:
    skips = [draws(seed, steps, k, len(draw)).reshape(-1) * draw.step for k, draw in enumerate(drawn)]
    return np.stack(skips, 1) if skips else None


def _ids(windows: Windows | Several, located: Located, entities: Int64s) -> dict[str, Int64s]:
    chain = windows.contents.chain
    ids = {"window": chain.within(located), "entity": entities, "anchor": chain.moments(located)}
    if isinstance(windows, Windows):
        return ids
    component = np.zeros_like(located.ids) if located.component is None else located.component
    shown, first_entity = windows.numbers
    return {"source": shown[component]} | ids | {"entity": entities + first_entity[component]}
