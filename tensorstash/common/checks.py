"""Checks of the arguments that callers give."""

import operator
from collections.abc import Sequence
from typing import SupportsIndex, cast


def is_integer(value: object) -> bool:
    """Whether a value is an integer of any library, and no truth value."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def at_least(least: int, value: object, what: str) -> int:
    """A count that was given as any kind of integer."""
    number = operator.index(cast("SupportsIndex", value)) if is_integer(value) else None
    if number is None or number < least:
        raise ValueError(f"{what}= is an integer of at least {least}; got {value!r}.")
    return number


def names_in(given: Sequence[str], what: str) -> list[str]:
    """A list of names, which one text is not."""
    if isinstance(given, str):
        raise TypeError(f"{what}= is a list of names; got the text {given!r}. Write [{given!r}].")
    return [*given]
