"""Checks of what callers give."""

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any, SupportsIndex, cast


def is_integer(value: object) -> bool:
    """Whether a value is an integer of any library, and no truth value."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def at_least(least: int, value: object, what: str) -> int:
    """A count that was given as any kind of integer."""
    number = operator.index(cast("SupportsIndex", value)) if is_integer(value) else None
    if number is None or number < least:
        raise ValueError(f"{what}= is an integer of at least {least}; got {value!r}.")
    return number


def vocabulary_of(given: Iterable[object]) -> tuple[str, ...] | tuple[int, ...]:
    """The values of a vocabulary, as plain texts or integers."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"vocabulary= is a list of texts or of integers; got {given!r}. Write [{given!r}].")
    if isinstance(given, (set, frozenset)):
        raise TypeError(
            f"vocabulary= gives each value the code of its place; a {type(given).__name__} has another order in each "
            "process. Write sorted(...)."
        )
    values: list[Any] = [value.item() if hasattr(value, "item") else value for value in given]
    if not values:
        raise ValueError("vocabulary= has at least one value; got none.")
    kind = str if isinstance(values[0], str) else int
    if wrong := [value for value in values if not isinstance(value, kind) or isinstance(value, bool)]:
        raise TypeError(f"vocabulary= holds texts, or integers; got {wrong[0]!r} among {len(values):,} values.")
    if kind is int:
        low, high = min(values), max(values)
        if low < -(1 << 63) or high >= 1 << (63 if low < 0 else 64):
            raise ValueError(f"vocabulary= holds integers of 64 bits; got {low} to {high}.")
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"vocabulary= names each value once; {twice[0]!r} is there twice. Leave one out.")
    return tuple(values)
