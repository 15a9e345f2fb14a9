"""What a scaler is bound to: the spans of windows and their columns, and the names and numbers of their entities."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch

from tensorstash.sampling.several import Several
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Several


class Divided(Several):
    """Windows of which this process may have a part, so that statistics are merged from those of the parts."""

    @abstractmethod
    def statistics(self, columns: list[str], kind: str, by: str | None) -> Callable[[str | None], Any]:
        """The `Statistics` of columns as a function of `by`, which is `None` or the one that was given."""


class Valid(NamedTuple):
    """Flags of a span: of each value of another one, or those of a member for a member of it."""

    span: str
    flag: int | None
    member: int | None


def check_source(source: object) -> None:
    """Raise `TypeError` for what no transform can be bound to."""
    if not isinstance(source, (Windows, Stash, Several)):
        raise TypeError(
            f"A transform must be bound to windows, a mix or a stash, got a {type(source).__name__}. Take the "
            "windows of the batches: bind(windows)."
        )


def parts_in(source: Source) -> list[Windows | Stash]:
    """The parts of windows of several stashes; otherwise the source alone."""
    return [*source.parts.values()] if isinstance(source, Several) else [source]


def stash_of(source: Windows | Stash) -> Stash:
    """The stash that windows are over."""
    return source.stash if isinstance(source, Windows) else source


def spans_in(source: Source) -> dict[str, str]:
    """Each span of a source, and its column."""
    for part in parts_in(source):  # all have the same
        pairs = [(span.name, span.column) for span in part.spans] if isinstance(part, Windows) else zip(part, part)
        return dict(pairs)
    return {}


def validity_of(source: Source, span: str) -> tuple[Valid, ...]:
    """The spans that say which values of a span are none, because they are of its `ts.is_valid` and over its slots."""
    part = parts_in(source)[0]  # all have the same spans
    stash, at = stash_of(part), {name: (name, None) for name in part} if isinstance(part, Stash) else _places(part)
    if span not in at or at[span][0] not in stash:
        return ()
    column, slots = at[span]
    members, found = stash.about(column).members, []
    for name, (other, others_slots) in at.items():
        if others_slots != slots or other not in stash or not stash.about(other).is_validity:
            continue
        flags = stash.about(other).members
        if flags == members:
            return (Valid(name, None, None),)
        found += [Valid(name, flags.index(one), k) for k, one in enumerate(members) if one in flags]
    return tuple(found)


def _places(windows: Windows) -> dict[str, tuple[str, object]]:
    """The column of each span, and what is equal for spans over the same slots."""
    at: dict[str, tuple[str, object]] = {span.name: (span.column, span.slots) for span in windows.placement.spans}
    for number, reach in enumerate(windows.placement.reaches):
        at |= {span.name: (span.column, number) for span in reach.shown}
    return at


def check_unscaled(source: Source, columns: Collection[str]) -> None:
    """Raise `ValueError` if `Scaler.apply` has scaled one of the columns."""
    for part in parts_in(source):
        for about in stash_of(part).info.columns:
            if about.is_scaled and about.name in columns:
                raise ValueError(
                    f"A column must be scaled once; {about.name!r} of this stash is scaled already. Leave the scaler "
                    "out, or take the stash from which this one was made."
                )


def entities_in(source: Source) -> tuple[list[Any], tuple[int, ...]]:
    """The names of entities in the order of their numbers, and for `Several` where those of each part begin."""
    return source.entities() if isinstance(source, Several) else (stash_of(source).entities, ())


def groups_of(entity: object, source: object, names: int, starts: tuple[int, ...] | None) -> torch.Tensor:
    """The group of each window, by the number of its entity, and of a mix of its component.

    Args:
        entity: the numbers of entities.
        source: the numbers of components, if there are any.
        names: how many entities there are.
        starts: where the entities of each component begin; zeros if the numbers count through all components, nothing
            for one stash, and `None` if it is not known of which windows the numbers are.
    """
    if starts is None:
        raise ValueError(
            "A scaler by entity must be bound first to the windows that the numbers of entities are of: "
            "scaler.bind(windows)."
        )
    if entity is None or (any(starts) and source is None):
        raise ValueError(
            "A scaler by entity needs the entity of each window, and of a mix the component. Make batches with "
            "ts.Loader(..., with_ids=True)."
        )
    if source is not None and not starts:
        raise ValueError(
            "A scaler by entity that is bound to one stash knows no components, got source. Bind it to the mix of "
            "the batch: scaler.bind(mix)."
        )
    group = _numbers(entity, "Entities", "entity")
    if not any(starts):
        _check_range(group, names, "entity", "entities")
        return group
    which = _numbers(source, "Components", "source")
    if which.shape != group.shape:
        raise ValueError(
            f"source must have one number for each entity, {tuple(group.shape)}, got {tuple(which.shape)}."
        )
    _check_range(which, len(starts), "component", "components")
    begin, end = (torch.tensor(edges, device=which.device)[which] for edges in (starts, (*starts[1:], names)))
    _check_range(group, end - begin, "entity", "entities")
    return begin + group


def _numbers(values: object, what: str, name: str) -> torch.Tensor:
    if not isinstance(values, torch.Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        raise TypeError(f"{what} must be integers, got {getattr(values, 'dtype', values)}. Take batch[{name!r}].")
    return values.to(torch.int64)


def _check_range(numbers: torch.Tensor, count: int | torch.Tensor, one: str, many: str) -> None:
    if not numbers.is_cpu:  # on a device it would wait for all that is queued there
        return
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        first = int(outside.reshape(-1).nonzero()[0, 0])
        known = count if isinstance(count, int) else int(count.reshape(-1)[first])
        raise IndexError(
            f"A scaler by entity is bound to the {many} 0 to {known - 1}; the batch has {one} "
            f"{int(numbers.reshape(-1)[first])}. Bind it to the windows of the batch: scaler.bind(windows)."
        )
