"""A segment in a file of the user's choice, which appears whole or not at all.

`obtain_file` is for a load: one process writes the file, and the others open it. `save` copies a segment.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tensorstash.errors import SegmentError
from tensorstash.segments.directory import Directory, Name, names, remove_unused
from tensorstash.segments.draft import write
from tensorstash.segments.lock import acquire, lock_file
from tensorstash.segments.publish import NO_KEY, Build, UnpublishedFile, run_build
from tensorstash.segments.segment import Segment, open_saved


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The file that a load writes: its path without links, the key of the load, whether it may replace a file."""

    path: str
    key: str
    overwrite: bool

    @property
    def file(self) -> str:
        """The name of the file in its directory."""
        return os.path.basename(self.path)


def obtain_file(target: FileTarget, build: Build, timeout: float | None) -> Segment:
    """The segment of that key in the file: opened if it exists, otherwise built by one of the processes that ask.

    Another file at the path is an error, unless it may be overwritten. Other errors are as in `obtain`.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        if (segment := _existing(target)) is not None:
            return segment
        with (
            directory_of_file(os.path.dirname(target.path)) as directory,
            lock_file(directory, Name(f".{target.file}", NO_KEY)) as lock,
        ):
            if acquire(lock, target.path, deadline):
                return _existing(target) or _write(directory, target, lock, build)


def _existing(target: FileTarget) -> Segment | None:
    """The segment in the file; `None` if there is no file, or one that may be overwritten."""
    path = target.path
    try:
        segment = open_saved(path)
    except SegmentError as error:
        if not os.path.lexists(path):
            return None
        if not os.path.isfile(path):
            raise SegmentError(
                f"A stash is written to a regular file; {path} exists and is not one. Choose another name."
            ) from error
        fault = "is not a whole stash that you can read"
    else:
        owner = os.fstat(segment.fd).st_uid
        if segment.key == target.key and owner == os.geteuid():
            return segment
        fault = "holds another stash: of another source, of one that has changed, or of other arguments"
        fault = fault if owner == os.geteuid() else f"belongs to user {owner}"
    if target.overwrite:
        return None
    raise SegmentError(
        f"A file is opened as it is only if the same load made it; {path} {fault}. Choose another path, or replace it: "
        "overwrite=True."
    )


@contextmanager
def directory_of_file(path: str) -> Iterator[Directory]:
    """The existing directory at `path`, which the user chose for a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SegmentError(
            f"A stash is written to a file in an existing directory; {path} cannot be opened: {error.strerror}. "
            "Create it, or choose another path."
        ) from error
    try:
        yield Directory(path, fd, chosen=True)
    finally:
        os.close(fd)


def _write(directory: Directory, target: FileTarget, lock: int, build: Build) -> Segment:
    label = f".{target.file}"
    for name in names(directory):  # left by killed processes where unnamed files are not supported
        if name.label == label and name.suffix.startswith(".tmp."):
            remove_unused(directory, name)
    file = UnpublishedFile(directory, label)
    return run_build(file, lock, build, lambda: _publish(file, target))


def _publish(file: UnpublishedFile, target: FileTarget) -> Segment:
    mine = Segment(file.reader(), target.path)
    try:
        file.publish_as(target.file, replace=False)
    except FileExistsError:
        if (theirs := _existing(target)) is not None:
            return theirs
        file.publish_as(target.file, replace=True)
    return mine


def save(segment: Segment, path: str) -> None:
    """Copy a segment to `path`. The copy replaces a file there when it is whole and on disk; links are followed."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise SegmentError(f"A stash is saved as a regular file; {path} exists and is not one. Choose another name.")
    folder, name = os.path.split(target)
    with directory_of_file(folder) as directory, closing(UnpublishedFile(directory, f".{name}")) as file:
        for start, chunk in segment.chunks():
            write(file.fd, memoryview(chunk), start)
        file.publish_as(name, replace=True)
