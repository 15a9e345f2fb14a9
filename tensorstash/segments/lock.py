"""The lock that elects one process to build a segment. Its file holds the number of that process, or its error.

The lock only saves work: without it several processes build the same segment, and the first to publish wins.
"""

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tensorstash.common.forks import close_kept, keep_from_children
from tensorstash.errors import named_error
from tensorstash.segments.directory import Directory, Name, open_file, same_file, unlink

_POLL = 0.01  # seconds between two attempts to take the lock
_SILENCE = 1.0  # seconds of waiting before a log entry names the process
_LINE = 200  # least bytes of a line in the lock file: a shorter one would not overwrite the line before

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # raised by some network file systems

_log = logging.getLogger("tensorstash")


@contextmanager
def lock_file(directory: Directory, name: Name) -> Iterator[int]:
    """A descriptor of the lock for a name. The process that holds it at the end removes the file."""
    lock_name = Name(name.label, name.key, ".lock")
    fd = open_file(directory, lock_name, os.O_RDWR | os.O_CREAT)
    keep_from_children(fd)
    try:
        yield fd
    finally:
        with suppress(FileNotFoundError):
            if _locked(fd) and same_file(directory, lock_name, fd):
                unlink(directory, lock_name)
        close_kept(fd)


def acquire(lock: int, what: object, deadline: float | None) -> bool:
    """Wait for the lock. `True`: this process builds the segment; `False`: the lock file was removed meanwhile.

    `what` names the segment in messages. Raises `TimeoutError` after the deadline, a time of `time.monotonic`, or the
    error of the process that held the lock and failed.
    """
    start = time.monotonic()
    waited = logged = False
    while not _locked(lock):
        waited = True
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise TimeoutError(f"{_loading(lock, what)}; timeout= is over. Wait longer, or end that process.")
        if not logged and now - start >= _SILENCE:
            logged = True
            _log.warning("%s; waiting for it.", _loading(lock, what))
        time.sleep(_POLL)
    removed = not os.fstat(lock).st_nlink
    state = _read_note(lock)
    if "error" in state and (waited or removed):
        raise named_error(str(state["error"]), str(state.get("message")))
    return not removed


def note(lock: int, state: Mapping[str, Any]) -> None:
    """Write a line into the lock file. Only messages depend on it."""
    with suppress(OSError):
        os.pwrite(lock, (json.dumps(state).ljust(_LINE) + "\n").encode(), 0)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _loading(lock: int, what: object) -> str:
    return f"Process {_read_note(lock).get('pid', '?')} is loading {what}"


def _read_note(lock: int) -> dict[str, Any]:
    try:
        state = json.loads(os.pread(lock, 1 << 20, 0).split(b"\n")[0])
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}
