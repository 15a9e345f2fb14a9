"""What a scaler is bound to: the spans of windows and their columns, and the names and numbers of their entities."""

from collections.abc import Collection
from itertools import accumulate
from typing import Any

from tensorstash.sampling.mix import Mix
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Mix | ShardedWindows


def parts_in(source: Source) -> list[Windows | Stash]:
    """The windows of each component of a mix, or of each shard; otherwise the source alone."""
    if isinstance(source, (Windows, Stash)):
        return [source]
    return [*(source.windows if isinstance(source, Mix) else source.parts).values()]


def stash_of(source: Windows | Stash) -> Stash:
    """The stash that windows are over."""
    return source.stash if isinstance(source, Windows) else source


def spans_in(source: Source) -> dict[str, str]:
    """Each span of a source, and its column."""
    for part in parts_in(source):  # all have the same
        pairs = [(span.name, span.column) for span in part.spans] if isinstance(part, Windows) else zip(part, part)
        return dict(pairs)
    return {}


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
    """The names of entities in the order of their numbers; of a mix, pairs of a component and a name.

    For a mix also where the entities of each component begin.
    """
    if isinstance(source, Mix):
        each = {name: windows.stash.entities for name, windows in source.windows.items()}
        names = [(part, name) for part, entities in each.items() for name in entities]
        return names, tuple(accumulate(map(len, [*each.values()][:-1]), initial=0))
    if isinstance(source, ShardedWindows):
        return [*source.division.entities()], ()
    return stash_of(source).entities, ()
