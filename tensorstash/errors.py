"""The exceptions of tensorstash: `ts.errors`. Each derives from `TensorstashError` and from the builtin that a caller
would catch anyway.

Wrong arguments raise plain `ValueError` and `TypeError`; these types are for what is found in files and data.
"""

import builtins
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice

_MOST_NAMES = 5000  # among which the nearest are looked for


class TensorstashError(Exception):
    """The base of all of them."""


class SourceError(TensorstashError, OSError):
    """A source does not exist, cannot be read, or is not what it says it is."""


class SchemaError(TensorstashError, TypeError):
    """A column has a type or a name that a stash cannot hold."""


class DataError(TensorstashError, ValueError):
    """Values break a rule: a null without a place, a duplicate time, a lossy cast, no valid window."""


class ColumnError(TensorstashError, KeyError):
    """A column that does not exist was named."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class SegmentError(TensorstashError, OSError):
    """A file is not a stash or a damaged one, or there is no shared stash of that label."""


class NoMemoryError(TensorstashError, MemoryError):
    """The columns asked for do not fit into the memory that is free."""


def unknown(name: object, known: Iterable[object], where: str, what: str = "column") -> ColumnError:
    """The error for a name that is not among `known`, with the nearest names as the remedy."""
    shown = {str(other): repr(other) for other in islice(known, _MOST_NAMES)}
    near = [shown[other] for other in get_close_matches(str(name), shown, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join([*shown.values()][:20]) or 'none'}."
    return ColumnError(f"{where} has no {what} {name!r}; {hint}")


def named_error(kind: str, message: str) -> Exception:
    """The error of another process: of its type, if that is one of ours or of Python's, with its message."""
    made = globals().get(kind, getattr(builtins, kind, None))
    if isinstance(made, type) and issubclass(made, Exception):
        with suppress(TypeError):  # a few types want more than a text
            return made(message)
    return RuntimeError(f"{kind}: {message}")
