"""Windows of chosen entities."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorstash.common.dtypes import Bools
from tensorstash.common.warn import warn
from tensorstash.errors import NoWindowError
from tensorstash.stash.stash import Stash
from tensorstash.windows.entity_numbers import numbers_of
from tensorstash.windows.intervals import keep
from tensorstash.windows.placement import Placement


def of_entities(placement: Placement, wanted: Bools) -> Placement:
    """The windows of chosen entities, `(entities,)`; what is made of them later, such as `latest`, keeps to these."""
    chosen = replace(placement, chosen=wanted if placement.chosen is None else wanted & placement.chosen)
    if placement.points is not None:
        return replace(chosen, points=placement.points.taken(wanted[placement.points.entity]))
    edges = placement.entity_edges
    return replace(chosen, intervals=keep(placement.intervals, edges[:-1][wanted], edges[1:][wanted]))


def of_named(placement: Placement, names: Sequence[Any]) -> Placement:
    """The windows of the entities with these names; one without any window is warned of."""
    wanted = np.zeros(len(placement.offsets) - 1, np.bool_)
    wanted[numbers_of(placement.stash.entities, names)] = True
    part = of_entities(placement, wanted)
    if len(placement) and not len(part):
        name = placement.stash.entity_at(int(wanted.argmax()))
        warn(
            f"None of the {len(placement):,} windows is of a chosen entity, such as {name!r}. windows.per_entity() has "
            "the number of each."
        )
    return part


def chosen_in(placement: Placement, stash: Stash) -> Bools | None:
    """The entities of another stash that have the names of the chosen ones, `(entities,)`; `None`: all."""
    if placement.chosen is None:
        return None
    names = {name for name, is_chosen in zip(placement.stash.entities, placement.chosen) if is_chosen}
    found = np.fromiter((name in names for name in stash.entities), np.bool_, len(stash.entities))
    if names and not found.any():
        raise NoWindowError(
            f"Windows keep to the entities that `of` or split_entities has chosen, and the other stash has none of "
            f"these {len(names):,}, such as {next(iter(names))!r}. Call on of the windows that they were chosen from, "
            "or load these entities."
        )
    return found
