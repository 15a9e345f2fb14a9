"""What a transform is bound to: the spans of windows, and their columns."""

import math
from collections.abc import Collection, Iterable, Sequence

import torch

from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError
from tensorstash.gather.span import Span
from tensorstash.sampling.several import Several
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Several


def check_source(source: object) -> None:
    """Raise `TypeError` unless a transform can be fitted on the source, or bound to it."""
    if not isinstance(source, (Windows, Stash, Several)):
        raise TypeError(
            f"A transform is fitted on or bound to windows, a mix or a stash, got {type_text(source)}. Take the "
            "windows of the batches."
        )


def parts_in(source: Source) -> list[Windows | Stash]:
    """The parts of windows of several stashes; for another source, the source itself."""
    return [*source.parts.values()] if isinstance(source, Several) else [source]


def stash_of(source: Windows | Stash) -> Stash:
    """The stash that windows are over."""
    return source.stash if isinstance(source, Windows) else source


def stash_with(source: Windows | Stash, column: str) -> Stash:
    """The stash of the spans of a column: that of the windows or, for spans in time, a table.

    Raises `SchemaError` if spans of the column are of several, whose numbers may mean different things.
    """
    if isinstance(source, Stash):
        return source
    stashes = {id(stash): stash for span, stash in source.placement.spans_and_stashes if column in span.columns}
    if len(stashes) > 1:
        raise SchemaError(
            f"A scaled column must be of one stash; these windows take {column!r} from {len(stashes)}. Load it under "
            "another name in one of them: columns={'name': ...}."
        )
    return next(iter(stashes.values()), source.stash)


def by_stash(source: Windows | Stash, columns: Iterable[str]) -> list[list[str]]:
    """The columns of which the rows that windows see are the same: those of one stash, its static ones apart."""
    alike: dict[tuple[int, bool], list[str]] = {}
    for name in dict.fromkeys(columns):
        stash = stash_with(source, name)
        alike.setdefault((id(stash), name in stash.static), []).append(name)
    return [*alike.values()]


def column_of(stash: Stash, name: str) -> torch.Tensor:
    """A column of a stash, which may be static."""
    return stash.static[name] if name in stash.static else stash[name]


def entries_in(source: Source) -> dict[str, str]:
    """Maps each span of a single column, and each static column, of a source to its column."""
    alone = {span.name: span.column for span in spans_in(source) if span.variates is None}
    return alone | {name: name for name in stash_of(parts_in(source)[0]).static}


def variates_in(source: Source) -> dict[str, tuple[str, ...]]:
    """Maps each span of `ts.each` of a source to its packs."""
    return {span.name: span.columns for span in spans_in(source) if span.variates is not None}


def scaled_variates(source: Source, columns: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Maps each span of `ts.each` to its packs, if a scaler has them; one that has only some of them is refused."""
    found = {}
    for span, packs in variates_in(source).items():
        known = [name for name in packs if name in columns]
        if known and len(known) < len(packs):
            other = next(name for name in packs if name not in columns)
            raise ValueError(
                f"All rows of a span must be scaled; {span!r} holds {other!r} too, which the scaler has not seen. Fit "
                f"it on {[*packs]}, or give {other!r} a span of its own."
            )
        if known:
            found[span] = packs
    return found


def columns_in(source: Source) -> dict[str, tuple[str, ...]]:
    """Maps each span of a source to its columns."""
    return {span.name: span.columns for span in spans_in(source)}


def spans_in(source: Source) -> Sequence[Span]:
    """The spans of windows, of which all parts have the same; each column of a stash is one."""
    part = parts_in(source)[0]
    return part.spans if isinstance(part, Windows) else [Span(name, name, 0, 0) for name in part]


def check_alike(source: Source, columns: Collection[str]) -> None:
    """Raise an error if a column is of several stashes, or a pack of `ts.each` of other widths in parts of a mix."""
    for part in parts_in(source):
        for name in columns:
            stash_with(part, name)  # raises
    of_variates = {name: span for span, names in variates_in(source).items() for name in names if name in columns}
    first, *others = [stash_of(part) for part in parts_in(source)]
    for name, span in of_variates.items():
        for other in others:
            if other[name].shape[1:] != first[name].shape[1:]:
                widths = [math.prod(stash[name].shape[1:]) for stash in (first, other)]
                raise ValueError(
                    f"A scaled pack must have as many columns in all components of a mix; {name!r} has {widths[0]} in "
                    f"one and {widths[1]} in another. Scale each row by itself: ts.InstanceNorm({span!r})."
                )


def check_unscaled(stash: Stash, columns: Iterable[str]) -> None:
    """Raise `ValueError` if `Scaler.transform` has scaled one of the columns."""
    for name in columns:
        if (name in stash or name in stash.static) and stash.about(name).is_scaled:
            raise ValueError(
                f"A column must be scaled once; {name!r} of this stash is scaled already. Leave the scaler out, or "
                "take the stash from which this one was made."
            )
