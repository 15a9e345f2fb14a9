"""What a scaler is bound to: the spans of windows and their columns, and the names and numbers of their entities."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from tensorstash.sampling.several import Several
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows

Source = Windows | Stash | Several


class Divided(Several):
    """Windows of which this process may have a part, so that statistics are merged from those of the parts."""

    @abstractmethod
    def statistics(self, columns: list[str], kind: str, by: str | None) -> Callable[[str | None], Any]:
        """The `Statistics` of columns as a function of `by`, which is `None` or the one that was given."""


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
