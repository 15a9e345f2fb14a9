"""One copy per machine: who comes first builds a segment, the others wait for it and attach.

The lock only saves work. Without it, or with one that does not lock, several processes build the same, and the first to
publish wins: a name is given once, to a file that is whole.
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from tensorstash.common.forks import close_kept, keep_from_children
from tensorstash.errors import SegmentError, named_error
from tensorstash.segments.directory import Directory, Name, attach_name, listed, name_of, opened, same_file
from tensorstash.segments.draft import allocate, write
from tensorstash.segments.limits import check_free
from tensorstash.segments.mapping import Segment
from tensorstash.segments.unpublished import Unpublished

# writes a whole segment to the file, and says from time to time which fraction is done
Build = Callable[[Unpublished, Callable[[float], None]], None]

_POLL = 0.01  # seconds between two looks at a lock
_SILENCE = 1.0  # seconds of waiting before it is said for whom
_LINE = 200  # bytes that a line of the lock file has at least, so that a shorter one covers the one before

_log = logging.getLogger("tensorstash")


def obtain(name: Name, build: Build, timeout: float | None) -> Segment:
    """The segment of that name: attached if it is there, else built by one of those who ask for it.

    Raises `TimeoutError` where another process has not finished within `timeout` seconds, and for whoever waited, the
    error with which it failed.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with opened() as directory:
            segment = attach_name(directory, name)
            if segment is not None:
                return segment
            with _lock_file(directory, name) as lock:
                if _acquire(lock, name, deadline):
                    return attach_name(directory, name) or _build(directory, name, lock, build)


def attach_newest(label: str, strict: bool) -> Segment:
    """The latest segment of a label."""
    with opened() as directory:
        while True:
            found = listed(directory)
            named = [segment.name for segment in found if segment.name.label == label]
            if not named:
                known = sorted({segment.name.label for segment in found})
                others = f"there are {', '.join(map(repr, known))}" if known else "there is none at all"
                raise SegmentError(
                    f"No segment in {directory.path} has the label {label!r}; {others}. Share one: "
                    f"ts.load(..., share={label!r})."
                )
            if (segment := attach_name(directory, named[-1], strict)) is not None:
                return segment


def reattach(path: str, crc: str, strict: bool) -> Segment:
    """The segment at a path, which must be the one with that checksum."""
    segment, name = None, name_of(os.path.basename(path))
    with suppress(FileNotFoundError), opened(os.path.dirname(path)) as directory:
        segment = attach_name(directory, name, strict) if name else None
    if segment is None or segment.crc != crc:
        raise SegmentError(
            f"A shared stash is pickled by its name; {path} has been removed since. Share it again, and pickle that."
        )
    return segment


def share_copy(segment: Segment, label: str) -> Segment:
    """A copy of a segment under a label; its key is a hash of all its bytes."""
    digest = blake2b(digest_size=32)
    with opened() as directory:
        target = Unpublished(directory, label)
        try:
            check_free(
                segment.size,
                target.limits(),
                "A stash must fit into free memory",
                f"a copy of it for share({label!r})",
                "Remove what nobody needs: ts.shared.list(), ts.shared.remove(label), ts.shared.prune(...).",
            )
            allocate(target.fd, 0, segment.size)
            for begin, chunk in segment.chunks():
                digest.update(chunk)
                write(target.fd, memoryview(chunk), begin)
            return target.publish(Name(label, digest.hexdigest()[:16]))
        finally:
            target.close()


def _build(directory: Directory, name: Name, lock: int, build: Build) -> Segment:
    target = Unpublished(directory, name.label)
    _note(lock, {"pid": os.getpid(), "done": 0.0})
    try:
        build(target, lambda done: _note(lock, {"pid": os.getpid(), "done": done}))
        segment = target.publish(name)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise  # the next in line takes over
    except BaseException as error:
        _note(lock, {"error": type(error).__name__, "message": str(error)})
        raise
    finally:
        target.close()
    segment.populate()
    return segment


# The lock: its file says who holds it and how far it is, or how it failed


@contextmanager
def _lock_file(directory: Directory, name: Name) -> Iterator[int]:
    """The descriptor of the lock; who holds it at the end removes the file, so that none is left."""
    lock_name = Name(name.label, name.key, ".lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(str(lock_name), flags, 0o600, dir_fd=directory.fd)
    keep_from_children(fd)
    try:
        yield fd
    finally:
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if same_file(directory, lock_name, fd):
                os.unlink(str(lock_name), dir_fd=directory.fd)
        close_kept(fd)


def _acquire(lock: int, name: Name, deadline: float | None) -> bool:
    """Wait for the lock; `False` if its file is not the one that others will lock, `True` if the segment is ours."""
    begin = time.monotonic()
    waited = said = False
    while not _locked(lock):
        waited = True
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise TimeoutError(f"{_progress(lock, name)}; timeout= is over. Wait longer, or end that process.")
        if not said and now - begin >= _SILENCE:
            said = True
            _log.warning("%s; waiting for it.", _progress(lock, name))
        time.sleep(_POLL)
    removed = not os.fstat(lock).st_nlink
    state = _read_note(lock)
    if "error" in state and (waited or removed):
        raise named_error(str(state["error"]), str(state.get("message")))
    return not removed


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _progress(lock: int, name: Name) -> str:
    state = _read_note(lock)
    return f"Process {state.get('pid', '?')} is loading {name} and has done {state.get('done', 0.0):.0%}"


def _note(lock: int, state: dict[str, Any]) -> None:
    """Write a line into the lock file; nobody depends on it."""
    with suppress(OSError):
        os.pwrite(lock, (json.dumps(state).ljust(_LINE) + "\n").encode(), 0)


def _read_note(lock: int) -> dict[str, Any]:
    try:
        state = json.loads(os.pread(lock, 1 << 20, 0).split(b"\n")[0])
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
