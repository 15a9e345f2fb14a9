"""A segment in a file of the user's choice: one process writes it, it appears whole, and the others open it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tensorstash.errors import SegmentError
from tensorstash.segments.directory import Directory, Name, names, remove_unused
from tensorstash.segments.lock import acquire, lock_file
from tensorstash.segments.publish import Build, built
from tensorstash.segments.segment import Segment, mapped, open_saved
from tensorstash.segments.unpublished import NO_KEY, UnpublishedFile


@dataclass(frozen=True, slots=True)
class Target:
    """The file that a load writes: its path, without links, the key of the load, and whether it may replace another."""

    path: str
    key: str
    overwrite: bool

    @property
    def file(self) -> str:
        """The name of the file in its directory."""
        return os.path.basename(self.path)


def obtain_file(target: Target, build: Build, timeout: float | None) -> Segment:
    """The segment of that key in the file: opened if it is there, otherwise built by one of the processes that ask.

    Another file at the path is an error, unless it may be overwritten. What is raised besides is as for `obtain`.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        if (segment := _existing(target)) is not None:
            return segment
        with _directory_of(target) as directory, lock_file(directory, Name(f".{target.file}", NO_KEY)) as lock:
            if acquire(lock, target.path, deadline):
                return _existing(target) or _write(directory, target, lock, build)


def _existing(target: Target) -> Segment | None:
    """The segment in the file; `None` if there is no file, or one that may be overwritten."""
    path = target.path
    if not os.path.lexists(path):
        return None
    if not os.path.isfile(path):
        raise SegmentError(f"A stash is written to a regular file; {path} exists and is not one. Choose another name.")
    try:
        segment = open_saved(path)
    except FileNotFoundError:  # it was removed meanwhile
        return None
    except OSError as error:  # so are the errors of damaged files
        what = "is not a whole stash" if isinstance(error, SegmentError) else f"cannot be read ({error.strerror})"
    else:
        if segment.key == target.key:
            return segment
        what = "holds another stash: of another source, of one that has changed, or of other arguments"
    if target.overwrite:
        return None
    raise SegmentError(
        f"A file is opened as it is only if the same load made it; {path} {what}. Choose another path, or replace it: "
        "overwrite=True."
    )


@contextmanager
def _directory_of(target: Target) -> Iterator[Directory]:
    where = os.path.dirname(target.path)
    try:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SegmentError(
            f"A stash is written to a file in an existing directory; {where} cannot be opened: {error.strerror}. "
            "Create it, or choose another path."
        ) from error
    try:
        yield Directory(where, fd, chosen=True)
    finally:
        os.close(fd)


def _write(directory: Directory, target: Target, lock: int, build: Build) -> Segment:
    label = f".{target.file}"
    for name in names(directory):  # of processes that were killed, where files without a name are not supported
        if name.label == label and name.suffix.startswith(".tmp."):
            remove_unused(directory, name)
    file = UnpublishedFile(directory, label)
    return built(file, lock, build, lambda: _publish(file, target))


def _publish(file: UnpublishedFile, target: Target) -> Segment:
    """Give the file its name, and map it; if another file of the same key has the name by now, map that one."""
    mine = mapped(file.reader(), target.path)
    mine.advise_random()
    try:
        file.publish_as(target.file, replace=False)
    except FileExistsError:
        theirs = _existing(target)
        if theirs is not None:
            return theirs
        file.publish_as(target.file, replace=True)
    return mine
