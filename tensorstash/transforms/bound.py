"""What a scaler is bound to: the spans of windows and their columns, and the names and numbers of their entities."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from tensorstash.sampling.mix import Mix
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Mix | ShardedWindows


def spans_in(source: Source) -> dict[str, str]:
    """Each span of a source, and its column."""
    if isinstance(source, Stash):
        return {name: name for name in source}
    if isinstance(source, Windows):
        return {span.name: span.column for span in source.spans}
    parts = source.windows if isinstance(source, Mix) else source.parts
    return next(map(spans_in, parts.values()), {})  # all parts have the same


def stashes_in(source: Source) -> list[Stash]:
    """The stashes of a source."""
    if isinstance(source, Stash):
        return [source]
    if isinstance(source, Windows):
        return [source.stash]
    return [part.stash for part in (source.windows if isinstance(source, Mix) else source.parts).values()]


def check_unscaled(source: Source, columns: Iterable[str]) -> None:
    """Refuse columns that `Scaler.apply` has scaled."""
    for stash in stashes_in(source):
        if scaled := [name for name in columns if name in stash and stash.about(name).is_scaled]:
            raise ValueError(
                f"A column must be scaled once; {scaled[0]!r} of this stash is scaled already. Leave the scaler out of "
                "transform=, or bind it to windows of the stash from which this one was made."
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
    return (source.stash if isinstance(source, Windows) else source).entities, ()
