"""The compiled kernel, and the same without it: the one place in which tests reach inside for that."""

import pytest

from tensorstash.native import library

WAYS = ["kernel", "torch"]


def is_compiled() -> bool:
    """Whether it is there, and no test has left it out."""
    return library.LIBRARY is not None


needed = pytest.mark.skipif(not is_compiled(), reason=library.why())


def leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on everything is computed by numpy and torch."""
    monkeypatch.setattr(library, "LIBRARY", None)
    monkeypatch.setitem(library._has_warned, "absent", True)


def take(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the `WAYS`; that of the kernel is skipped where there is none."""
    if way == "torch":
        leave_out(monkeypatch)
    elif not is_compiled():
        pytest.skip(library.why())
