"""What a transform is bound to: the spans of windows, their columns, and their flags of `ts.is_valid`."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tensorstash.sampling.mix import Mix
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Mix | ShardedWindows


class Valid(NamedTuple):
    """Flags of a span: of each value of another one, or those of a member for a member of it."""

    span: str
    flag: int | None
    member: int | None


def check_source(source: object) -> None:
    """Raise `TypeError` for what no transform can be bound to."""
    if not isinstance(source, (Windows, Stash, Mix, ShardedWindows)):
        raise TypeError(
            f"A transform must be bound to windows, a mix, shards or a stash, got a {type(source).__name__}. Take the "
            "windows of the batches: bind(windows)."
        )


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
    for number, time_span in enumerate(windows.placement.time_spans):
        at |= {span.name: (span.column, number) for span in time_span.shown}
    return at


def computed_in(source: Source) -> frozenset[str]:
    """The spans of `ts.calendar` whose empty slots hold values like any other slot, computed from their time.

    The slots of spans in time have none, nor have those of windows without a known step. For a stash alone all
    columns of `ts.calendar` count, because its scaler is for windows that are not known yet.
    """
    computed = set[str]()
    for part in parts_in(source):
        pairs: Iterable[tuple[str, str]] = zip(part, part) if isinstance(part, Stash) else ()
        if isinstance(part, Windows) and part.placement.slots.frequency is not None:
            pairs = [(span.name, span.column) for span in part.placement.spans]
        computed |= {span for span, column in pairs if stash_of(part).about(column).calendar}
    return frozenset(computed)


def check_unscaled(source: Source, columns: Collection[str]) -> None:
    """Raise `ValueError` if `Scaler.transform` has scaled one of the columns."""
    for part in parts_in(source):
        for about in stash_of(part).info.columns:
            if about.is_scaled and about.name in columns:
                raise ValueError(
                    f"A column must be scaled once; {about.name!r} of this stash is scaled already. Leave the scaler "
                    "out, or take the stash from which this one was made."
                )
