"""Checks of the arguments that callers give."""

import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, cast

from tensorstash.common.text import type_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

Text = TypeVar("Text", bound="str | None")

MOST_COUNT = 1 << 62  # the sum of two numbers of windows, steps or rows must fit into 64 bits
_MOST_SHOWN = 100  # characters of a repr


def shown(value: object) -> str:
    """A value for a message: its repr if that is short, else its type."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}...")
    text = re.sub(r" at 0x[0-9a-fA-F]+(?=>)", "", repr(value))
    return text if len(text) <= _MOST_SHOWN and "\n" not in text else type_text(value)


def is_integer(value: object) -> bool:
    """Whether a value is an integer, of Python, numpy or torch; a boolean is not."""
    try:
        operator.index(cast("SupportsIndex", value))
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors of any kind have an `__index__`, which may fail
        return False
    return not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "torch.bool"


def at_least(least: int, value: object, what: str, *, below: int | None = None) -> int:
    """The value as an `int`; raises `ValueError` unless it is an integer of any type, in `[least, below)`."""
    number = operator.index(cast("SupportsIndex", value)) if is_integer(value) else None
    if number is None or number < least:
        raise ValueError(f"{what} must be an integer >= {least}, got {shown(value)}.")
    if below is not None and number >= below:
        limit = f"2**{below.bit_length() - 1}" if below > 1 << 20 and not below & below - 1 else f"{below:,}"
        raise ValueError(f"{what} must be < {limit}, got {number}.")
    return number


def integer(value: object, what: str) -> int:
    """The value as an `int`; raises `ValueError` unless it is an integer of any type."""
    if not is_integer(value):
        raise ValueError(f"{what} must be an integer, got {shown(value)}.")
    return operator.index(cast("SupportsIndex", value))


def is_flag(value: object) -> bool:
    """Whether a value is a truth value of Python or numpy."""
    # by the name of the type: some commands check flags without importing numpy
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def flag(value: object, what: str, remedy: str = "") -> bool:
    """A truth value of Python or numpy; raises `TypeError` for anything else, such as 1."""
    if not is_flag(value):
        raise TypeError(f"{what} must be True or False, got {shown(value)}.{remedy and f' {remedy}'}")
    return bool(value)


def one_of(value: object, allowed: Sequence[Text], what: str) -> Text:
    """One of a few texts, or of `None` and texts; raises `ValueError` for anything else."""
    for choice in allowed:  # values of other types may define their own `==`
        if choice is value or (isinstance(value, str) and value == choice):
            return choice
    *first, last = ("None" if choice is None else f'"{choice}"' for choice in allowed)
    raise ValueError(f"{what} must be {', '.join(first)} or {last}, got {shown(value)}.")


def amount(value: object, unit: str, what: str) -> float | None:
    """A number of seconds or bytes, or `None`; raises `ValueError` for anything but a number of at least 0."""
    if value is None or ((is_integer(value) or isinstance(value, float)) and cast("float", value) >= 0):
        return cast("float | None", value)
    raise ValueError(f"{what} must be a number of {unit} >= 0, got {shown(value)}.")


def path_of(value: object, what: str) -> str:
    """A path or URL as a text; raises `TypeError` for anything else, `ValueError` for what no path can be."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{what} must be a str or pathlib.Path, got {shown(value)}.")
    path = os.fsdecode(value)
    if not path or "\0" in path:
        raise ValueError(f"{what} must be a path that is not empty and has no null character, got {shown(value)}.")
    return path


def names_in(given: Sequence[str], what: str) -> list[str]:
    """A list of names; a single text is refused, and so are a mapping and other items."""
    if isinstance(given, str):
        raise TypeError(f"{what} must be a list of names, got the text {given!r}. Write [{given!r}].")
    if isinstance(given, Mapping):  # its values would be lost
        raise TypeError(f"{what} must be a list of names, got {shown(given)}. Write {shown([*given])}.")
    if not is_listed(given):
        raise TypeError(f"{what} must be a list of names, got {shown(given)}.")
    names = [*given]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a list of names, got {shown(name)} in it.")
    return names


def is_listed(given: object) -> bool:
    """Whether a value is a sequence of items: neither a text nor a frame, which iterates over its columns."""
    if isinstance(given, (str, bytes, bytearray)) or hasattr(given, "columns"):
        return False
    return isinstance(given, Iterable) and getattr(given, "ndim", 1) > 0  # a tensor without dimensions is one too


def array_of(values: Any, what: str) -> "NDArray[Any]":
    """Values of any library as an array, without a copy where possible; raises `TypeError` if that fails."""
    if getattr(values, "is_meta", False):
        raise TypeError(f"{what} must have values, got a tensor on the device 'meta'. Make it on the CPU.")
    import numpy as np

    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError) as error:  # such as a ragged list or a sparse tensor
        raise TypeError(f"{what} must be one array, list or dense tensor of values, got {shown(values)}.") from error


def bound_anew(given: Any, windows: object) -> Any:
    """What `given.bind(windows)` returns; raises `TypeError` if that is the object itself, which others may share."""
    made = given.bind(windows)
    if made is given:
        raise TypeError(
            "bind(windows) must return a new object, because several loaders may share the one that is given; that of "
            f"{shown(given)} returned itself. Set what belongs to the windows in copy.copy(self), and return that."
        )
    return made
