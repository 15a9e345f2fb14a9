"""How the values of a column are stored: a small class of parameters for each way.

For each class, `columns/resolve.py` has a case that makes the column, and `ingest/decoders.py` one that decodes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tensorstash.columns.name_list import Names

Unknown = Literal["keep", "error", "drop"]  # what becomes of a name that a vocabulary lacks


@dataclass(frozen=True, slots=True)
class Plain:
    """Numbers and times, unchanged; codes of a stash, which have been decoded."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Booleans that say where the source has a value."""


@dataclass(frozen=True, slots=True)
class Ascending:
    """Codes for texts, in ascending order of the texts."""

    known: Names | None = field(default=None, repr=False)  # names that keep their codes; new names follow them
    unknown: Unknown = "keep"


@dataclass(frozen=True, slots=True)
class Given:
    """Codes for texts or integers: their indices in a given vocabulary."""

    vocabulary: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Hashed:
    """Codes for texts or integers: the buckets of their hashes."""

    buckets: int


PLAIN = Plain()
Codec = Plain | Validity | Ascending | Given | Hashed
