"""Closing what an object holds when it goes, without running a line of Python.

A destructor or weak reference callback in Python may be interrupted by Ctrl-C like any other line, but an exception in
it is only printed: the Ctrl-C is lost, and the loop that the user wanted to end goes on. In callbacks that are written
in C no signal is handled.
"""

import atexit
import io
import weakref
from collections.abc import Callable
from typing import cast

_closing: dict[int, "weakref.ref[object]"] = {}


def close_with(owner: object, fd: int) -> None:
    """Close a descriptor when its owner is gone, or at exit."""
    for key, ended in [*_closing.items()]:
        if ended() is None:
            _closing.pop(key, None)
    # `__exit__` of a file takes any arguments, here the reference, and closes it
    close = cast("Callable[[object], None]", io.FileIO(fd).__exit__)
    reference = weakref.ref(owner, close)
    _closing[id(reference)] = reference


@atexit.register
def _close_all() -> None:
    for reference in [*_closing.values()]:
        if reference.__callback__ is not None:
            reference.__callback__(reference)
    _closing.clear()
