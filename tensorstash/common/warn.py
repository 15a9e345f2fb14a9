"""Warnings that point at the line of the user, however many functions of this package lie between."""

import warnings
from inspect import currentframe

_PACKAGE = __name__.partition(".")[0]


def warn(text: str) -> None:
    """Warn, a `UserWarning`, at the innermost line that is not of this package."""
    frame, level = currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
