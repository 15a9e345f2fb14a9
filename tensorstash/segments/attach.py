"""Attaching a shared segment: by its name, as the newest of a label, or by the reference in a pickle."""

import fcntl
import os
import stat
from contextlib import suppress

from tensorstash.errors import SegmentError
from tensorstash.segments.directory import (
    READ,
    Directory,
    Name,
    check_label,
    listed,
    name_of,
    not_a_file,
    open_file,
    opened,
)
from tensorstash.segments.segment import Segment, mapped


def attach_name(directory: Directory, name: Name, strict: bool = False) -> Segment | None:
    """The segment of that name, mapped; `None` if there is none."""
    fd = open_segment(directory, name)
    return None if fd is None else mapped(fd, directory.join(name), name.label, strict)


def attach_newest(label: str, strict: bool) -> Segment:
    """The latest segment of a label."""
    check_label(label, "ts.shared.list() shows the labels there are.")
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


def open_segment(directory: Directory, name: Name) -> int | None:
    """A descriptor of the segment that holds a shared lock on it; `None` if there is no such segment.

    A process that removes unused segments takes an exclusive lock for a moment. The shared lock passes to processes
    that receive the descriptor. It ends with the last of these descriptors, or with the mapping if that lives longer.
    """
    while True:
        try:
            fd = open_file(directory, name, READ)
        except FileNotFoundError:
            return None
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise not_a_file(directory, name, "it is not a regular file")
            if about.st_uid != os.geteuid():
                raise not_a_file(directory, name, f"it belongs to user {about.st_uid}")
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed between the two calls
