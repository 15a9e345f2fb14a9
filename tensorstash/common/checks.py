"""Checks of the arguments that callers give."""

import operator
import os
from collections.abc import Iterable, Sequence
from typing import SupportsIndex, cast


def is_integer(value: object) -> bool:
    """Whether a value is an integer, of Python, numpy or torch; a boolean is not."""
    try:
        operator.index(cast("SupportsIndex", value))
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors of any kind have an `__index__`, which may fail
        return False
    return not isinstance(value, bool)


def at_least(least: int, value: object, what: str) -> int:
    """The value as an `int`; raises `ValueError` unless it is an integer of any type and at least `least`."""
    number = operator.index(cast("SupportsIndex", value)) if is_integer(value) else None
    if number is None or number < least:
        raise ValueError(f"{what} must be an integer >= {least}, got {value!r}.")
    return number


def path_of(value: object, what: str) -> str:
    """A path or URL as a text; raises `TypeError` for anything else, and for an empty one."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(f"{what} must be a str or pathlib.Path that is not empty, got {value!r}.")
    return os.fsdecode(value)


def names_in(given: Sequence[str], what: str) -> list[str]:
    """A list of names; a single text is refused."""
    if isinstance(given, str):
        raise TypeError(f"{what} must be a list of names, got the text {given!r}. Write [{given!r}].")
    if not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:  # a tensor without dimensions is "iterable"
        raise TypeError(f"{what} must be a list of names, got {given!r}.")
    return [*given]
