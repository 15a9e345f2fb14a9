"""The entities of a scaler: their names, and the group of constants of each window by the numbers in its batch."""

from itertools import accumulate
from typing import Any

import torch

from tensorstash.common.checks import shown
from tensorstash.errors import DataError
from tensorstash.sampling.several import Several
from tensorstash.transforms.bound import Source, parts_in, stash_of


def names_of(source: Source, by: str) -> tuple[list[Any], tuple[int, ...]]:
    """The names of entities in the order of their numbers, and the position in them at which each component starts.

    One stash has no starts, and neither have the codes of a column, whose names are its vocabulary.
    """
    if by != "entity":
        return stash_of(parts_in(source)[0]).vocabulary(by), ()
    if not isinstance(source, Several):
        return stash_of(source).entities, ()
    if source.entities is not None:
        return [*source.entities], (0,)
    each = {part: windows.stash.entities for part, windows in source.parts.items()}
    names = [(part, name) for part, entities in each.items() for name in entities]
    return names, tuple(accumulate(map(len, [*each.values()][:-1]), initial=0))


def groups_by_name(names: list[Any], fitted: list[Any], by: str, *, pooled: bool) -> list[int]:
    """The group of each entity or code in a fitted scaler, whose last group is for unknown entities if `pooled`.

    That last group also ends the result, so that a scaler with these groups has it too.
    """
    known = {name: group for group, name in enumerate(fitted)}
    if not pooled and (missing := [name for name in names if name not in known]):
        raise DataError(
            f"A scaler by {by} must know each {by}; {len(missing):,} of {len(names):,} are unknown, such as "
            f"{missing[0]!r}. Fit it on windows with these too, or with unknown='pooled'."
        )
    return [known.get(name, len(known)) for name in names] + [len(known)] * pooled


def groups_of(
    entity: object, source: object, names: int, starts: tuple[int, ...] | None, windows: int | None
) -> torch.Tensor:
    """The group of constants of each window, by the number of its entity and, in a mix, of its component.

    Args:
        entity: the numbers of entities.
        source: the numbers of components, if there are any.
        names: the number of entities.
        starts: as `names_of` returns it; `None` if the scaler is not bound.
        windows: how many windows there are, if that is known.
    """
    if starts is None:
        raise ValueError(
            "A scaler by entity must be bound first, to the windows whose entities the batch numbers: "
            "scaler.bind(windows)."
        )
    if entity is None or (any(starts) and source is None):
        raise ValueError(
            "A scaler by entity needs the entity of each window, and in a mix its component. Make batches with "
            "ts.Loader(..., with_ids=True)."
        )
    if source is not None and not starts:
        raise ValueError(
            "A scaler by entity that is bound to one stash knows no components, got source. Bind it to the mix of "
            "the batch: scaler.bind(mix)."
        )
    start: Any = 0
    stop: Any = names
    group = integers(entity, "entity")
    if any(starts):
        which = integers(source, "source")
        if which.shape != group.shape:
            raise ValueError(
                f"source must have one number for each entity, {tuple(group.shape)}, got {tuple(which.shape)}."
            )
        _check_range(which, len(starts), "component", "components")
        start, stop = (torch.tensor(edges, device=which.device)[which] for edges in (starts, (*starts[1:], names)))
    _check_range(group, stop - start, "entity", "entities")
    if windows is not None and group.numel() != windows:  # one for all would be broadcast
        raise ValueError(f"entity must have one number for each of {windows:,} windows, got {group.numel()}.")
    return start + group


def integers(values: object, name: str) -> torch.Tensor:
    """The integers of an entry of a batch."""
    if not isinstance(values, torch.Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        got = values.dtype if isinstance(values, torch.Tensor) else shown(values)
        raise TypeError(f"{name} must be a tensor of integers, got {got}. Take batch[{name!r}].")
    return values.to(torch.int64)


def _check_range(numbers: torch.Tensor, count: int | torch.Tensor, one: str, many: str) -> None:
    if not numbers.is_cpu:  # on a device the check would wait for all queued work
        return
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        first = int(outside.reshape(-1).nonzero()[0, 0])
        known = count if isinstance(count, int) else int(count.reshape(-1)[first])
        raise IndexError(
            f"A scaler by entity is bound to the {many} 0 to {known - 1}; the batch has {one} "
            f"{int(numbers.reshape(-1)[first])}. Bind it to the windows of the batch: scaler.bind(windows)."
        )
