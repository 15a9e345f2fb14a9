"""Warnings that point at the line of the user, however many functions of this package lie between."""

import warnings
from inspect import currentframe

_PACKAGE = __name__.partition(".")[0]


def warn(text: str) -> None:
    """Warn at the innermost line that is not of this package.

    Example:
        >>> import warnings
        >>> from tensorstash.common.warn import warn
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warn("Two rows are missing.")
        >>> [(one.category.__name__, str(one.message)) for one in caught]
        [('UserWarning', 'Two rows are missing.')]
    """
    frame, level = currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
