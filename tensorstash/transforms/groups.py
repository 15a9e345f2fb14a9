"""The groups of a scaler, each with a centre and a scale: their names, and the group of each window, slot or row."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from tensorstash.common.checks import shown
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.sampling.several import Several
from tensorstash.stash.stash import Stash
from tensorstash.transforms.bound import Source, parts_in, stash_of
from tensorstash.transforms.entries import span_of
from tensorstash.transforms.observed import same_slots


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


def check_coded(source: Source, by: str) -> None:
    """Raise an error unless `by` names a column of codes."""
    stash = stash_of(parts_in(source)[0])
    if by not in stash:
        coded = [name for name in stash if stash.about(name).kind == "category"]
        raise unknown(by, ["entity", *coded], "by=", "column of codes")
    if stash.about(by).kind != "category" or stash[by].ndim > 1:
        raise SchemaError(
            f"by= must be 'entity' or a single column of codes; {by!r} is {stash[by].dtype}. Load it as text, or with "
            "ts.column(..., vocabulary=[...])."
        )


def code_spans(source: Source, by: str, spans: Iterable[str]) -> dict[str, str]:
    """Maps each span to that of the codes in its slots; raises `ValueError` if there is none."""
    part, found = parts_in(source)[0], dict[str, str]()
    if isinstance(part, Stash):
        return dict.fromkeys(spans, by)
    whole = {span.name for span in part.placement.spans if span.variates is None}
    for name in spans:
        beside = same_slots(part.placement, name)[1] if name in whole else []
        codes = [span.name for span in beside if span.column == by and span.variates is None]
        if not codes:
            raise ValueError(
                f"A scaler by {by!r} needs the code of each slot; no span of {by!r} has the slots of {name!r}. Add one "
                "to spans=, with the same start and stop."
            )
        found[name] = codes[0]
    return found


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


def groups_of_entities(entity: object, source: object, names: int, starts: tuple[int, ...] | None) -> torch.Tensor:
    """The group of each window, by the number of its entity and, in a mix, of its component.

    Args:
        entity: the numbers of entities.
        source: the numbers of components, if there are any.
        names: the number of entities.
        starts: as `names_of` returns it; `None` if the scaler is not bound.
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
        check_count(which, group.numel(), "source")
        which = which.view_as(group)
        _check_range(which, len(starts), "component", "components")
        start, stop = (torch.tensor(edges, device=which.device)[which] for edges in (starts, (*starts[1:], names)))
    _check_range(group, stop - start, "entity", "entities")
    return start + group


def groups_of_codes(codes: torch.Tensor, count: int) -> torch.Tensor:
    """The group of each slot by its code, of which there are `count`; a missing or unknown code is in one more."""
    return codes.where((codes >= 0) & (codes < count), count).long()


def groups_of_rows(batch: Mapping[str, object], span: str, sizes: Sequence[int], group: torch.Tensor | None) -> Any:
    """The place of the constants of each row of a span of `ts.each` among those of all groups and columns, `(rows,)`.

    Args:
        batch: it holds `<span>.window`, `<span>.variate` and `<span>.pack`.
        span: the name of the span.
        sizes: the number of columns of each of its packs.
        group: the group of each window, `(windows,)`; `None`: there is one.
    """
    window, variate, pack = (span_of(batch, f"{span}.{entry}") for entry in ("window", "variate", "pack"))
    *first, total = accumulate(sizes, initial=0)
    column = torch.tensor(first, device=pack.device)[pack] + variate
    return column if group is None else group.reshape(-1).to(column.device)[window] * total + column


def integers(values: object, name: str) -> torch.Tensor:
    """The integers of an entry of a batch."""
    if not isinstance(values, torch.Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        got = values.dtype if isinstance(values, torch.Tensor) else shown(values)
        raise TypeError(f"{name} must be a tensor of integers, got {got}. Take batch[{name!r}].")
    return values.to(torch.int64)


def check_count(numbers: torch.Tensor, windows: int, name: str) -> None:
    """Raise `ValueError` unless there is a number for each window: one for all would be broadcast."""
    if numbers.numel() != windows:
        raise ValueError(f"{name} must have one number for each of {windows:,} windows, got {numbers.numel()}.")


def check_known(values: torch.Tensor, lost: torch.Tensor, by: str) -> None:
    """Raise `DataError` if there is a value in one of the slots that are `lost`, whose code has no constants."""
    if lost.any() and not values[lost].isnan().all():
        raise DataError(
            f"A scaler by {by!r} must know the code of each value; some have none, or one that is not in the "
            "vocabulary. Fit it with unknown='pooled'."
        )


def _check_range(numbers: torch.Tensor, count: int | torch.Tensor, one: str, many: str) -> None:
    if not numbers.is_cpu:  # on a device the check would wait for all queued work
        return
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        known = torch.as_tensor(count).expand_as(numbers)[outside][0]
        raise IndexError(
            f"A scaler by entity is bound to the {many} 0 to {known - 1}; the batch has {one} {numbers[outside][0]}. "
            "Bind it to the windows of the batch: scaler.bind(windows)."
        )
