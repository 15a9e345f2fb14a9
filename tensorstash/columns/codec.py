"""How the values of a column are stored: one small class per kind of column, with what it needs to know.

`columns/resolve.py` has a line per class that makes a column of it, `ingest/decoders.py` one that decodes it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plain:
    """Numbers and times as they are."""

    bits: bool = False  # whether the source has bfloat16, as uint16
    digits: bool = False  # whether decimals of the source must keep all their digits


@dataclass(frozen=True, slots=True)
class Validity:
    """Booleans that say where the source has a value."""

    bits: bool = False  # as in `Plain`


@dataclass(frozen=True, slots=True)
class Appearance:
    """Codes for texts, numbered in order of first appearance."""


@dataclass(frozen=True, slots=True)
class Given:
    """Codes for texts or integers: their places in a given vocabulary."""

    vocabulary: tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hashed:
    """Codes for texts or integers: the buckets that their hashes fall into."""

    buckets: int


PLAIN = Plain()
Codec = Plain | Validity | Appearance | Given | Hashed
