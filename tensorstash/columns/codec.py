"""How the values of a column are stored: one small class of parameters per kind of column.

For each class, `columns/resolve.py` has a line that makes the column, and `ingest/decoders.py` a line that decodes it.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Plain:
    """Numbers and times as they are."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Booleans that say where the source has a value."""


@dataclass(frozen=True, slots=True)
class Ascending:
    """Codes for texts, in ascending order of the texts."""

    known: tuple[Any, ...] = field(default=(), repr=False)  # names that keep their numbers, before all others


@dataclass(frozen=True, slots=True)
class Given:
    """Codes for texts or integers: their indices in a given vocabulary."""

    vocabulary: tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hashed:
    """Codes for texts or integers: the buckets that their hashes fall into."""

    buckets: int


PLAIN = Plain()
Codec = Plain | Validity | Ascending | Given | Hashed
