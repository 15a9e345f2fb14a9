"""Detects numbers that are stored as text, because a reader could not parse them."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

# a sign, a currency, digits with marks between thousands or an exponent, and a unit; "007" is a label
_NUMBER = re.compile(
    r"[+\-\u2212]?\s?[$\u20ac\u00a3]?\s?"
    r"(?:(?:0|[1-9]\d*)(?:[.,]\d*)?|[1-9]\d{0,2}(?:[,.' \u00a0\u202f]\d{3})+(?:[.,]\d+)?|[.,]\d+)(?:[eE][+-]?\d+)?"
    r"\s?(?P<unit>[%\u2030$\u20ac\u00a3]|[A-Za-z\u00b0\u00b5][A-Za-z/]{0,4})?",
    re.ASCII,
)
_MISSING = frozenset(("", "-", "--", ".", "?", "*", "na", "n/a", "nan", "null", "none", "missing", "#n/a"))
_SAMPLE = 10_000
_FEWEST = 10


def number_share(texts: Sequence[str]) -> float:
    """The share of texts that are numbers with the same unit or none; marks of missing values do not count."""
    values = [text for text in map(str.strip, texts) if text.lower() not in _MISSING]
    units = Counter(number["unit"] or "" for text in values if (number := _NUMBER.fullmatch(text)))
    bare = units.pop("", 0)
    return (bare + max(units.values(), default=0)) / max(len(values), 1)


def look_like_numbers(texts: Sequence[Any]) -> bool:
    """Whether 90% of distinct texts are numbers. Fewer than ten are labels, unless one marks a missing value."""
    # texts are sorted, digits before letters: take some of all
    sample = [texts[k] for k in range(0, len(texts), 1 + len(texts) // _SAMPLE)]
    is_marked = any(text.strip().lower() in _MISSING for text in sample)
    return (is_marked or len(sample) >= _FEWEST) and number_share(sample) >= 0.9
