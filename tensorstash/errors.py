"""The exceptions of tensorstash: `ts.errors`.

Each derives from `TensorstashError`, and from the builtin exception that fits. Wrong arguments raise a plain
`ValueError` or `TypeError`; the types here are for faults in files, data and names.
"""

import builtins
from bisect import bisect
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches

__all__ = [
    "ColumnError",
    "DataError",
    "NoMemoryError",
    "NoWindowError",
    "SchemaError",
    "SegmentError",
    "SourceError",
    "TensorstashError",
]

_MOST_NAMES = 2500  # known names before an unknown one, in their order, that are compared with it, and behind it
_MOST_SHOWN = 20


def __dir__() -> list[str]:
    return __all__


class TensorstashError(Exception):
    """The base of all exceptions of tensorstash."""


class SourceError(TensorstashError, OSError):
    """A source does not exist, cannot be read, or is not in its format."""


class SchemaError(TensorstashError, TypeError):
    """A column has a type or a name that a stash cannot hold."""


class DataError(TensorstashError, ValueError):
    """Values break a rule: a null that cannot be stored, a duplicate time, a lossy cast, no valid window."""


class NoWindowError(DataError):
    """There is no window: no run of rows is long enough, or `require=` or `where=` leaves none."""


class ColumnError(TensorstashError, KeyError):
    """No column has this name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class SegmentError(TensorstashError, OSError):
    """A file is not a stash or is damaged, or no shared stash has the label."""


class NoMemoryError(TensorstashError, MemoryError):
    """The columns do not fit into free memory."""


def unknown(name: object, known: Iterable[object], where: str, what: str = "column") -> ColumnError:
    """The error for a name that is not in `known`; the nearest names are the remedy, else the first ones."""
    names = [*known]
    compared, wanted = {str(other).lower(): repr(other) for other in names}, str(name).lower()
    ordered = sorted(compared)
    likely = ordered[max(0, bisect(ordered, wanted) - _MOST_NAMES) :][: 2 * _MOST_NAMES]
    near = [compared[other] for other in get_close_matches(wanted, likely, n=3, cutoff=0.5)]
    shown = ", ".join(map(repr, names[:_MOST_SHOWN])) or "none"
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {shown}{more}."
    return ColumnError(f"{where} has no {what} {name!r}; {hint}")


def named_error(kind: str, message: str) -> Exception:
    """An error of another process, from the name of its type and its message; `RuntimeError` if the type is foreign."""
    error_type = globals().get(kind, getattr(builtins, kind, None))
    if isinstance(error_type, type) and issubclass(error_type, Exception):
        with suppress(TypeError):  # the constructors of a few types need more than a message
            return error_type(message)
    return RuntimeError(f"{kind}: {message}")
