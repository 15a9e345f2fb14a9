"""The directory of shared segments: one per user, on tmpfs, that nobody else can look into.

Whoever may write to a directory can put links, pipes and files of his own there. So the directory itself is checked by
its descriptor, and everything in it is opened relative to that. A descriptor is not kept: a system that removes the
files of users who log out removes the directory too, and it is made anew when it is needed again.
"""

import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tensorstash.errors import SegmentError
from tensorstash.segments.mapping import Segment, mapped

_SHM = "/dev/shm"
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # of a pipe, open would wait for ever
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@=-]{0,99}")
_NAME = re.compile(r"(.+)-([0-9a-f]{16})(\.lock|\.tmp\.[0-9a-f]{16})?")


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory of segments that belongs to this user alone."""

    path: str
    fd: int

    def join(self, name: str) -> str:
        """The path of a file in it, for other programs and messages."""
        return os.path.join(self.path, name)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a file in the directory: `<label>-<key>`, with a suffix if it is no segment."""

    label: str
    key: str
    suffix: str = ""

    def __str__(self) -> str:
        return f"{self.label}-{self.key}{self.suffix}"


def check_label(label: object) -> str:
    """Refuse what cannot be the beginning of a file's name."""
    if isinstance(label, str) and _LABEL.fullmatch(label):
        return label
    raise ValueError(
        "A label has up to 100 letters, digits or any of _.+@=- and begins with a letter or digit; got "
        f"{label!r}. Choose another for share=."
    )


def place() -> str:
    """Where the directory is."""
    if given := os.environ.get("TENSORSTASH_DIR"):
        return os.path.abspath(os.path.expanduser(given))
    if os.path.isdir(_SHM):
        return f"{_SHM}/tensorstash-{os.geteuid()}"
    cache = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.join(os.path.expanduser(cache), "tensorstash")


@contextmanager
def opened(path: str | None = None) -> Iterator[Directory]:
    """The directory at `path`, which must be there; or that of this user, made if there is none."""
    where = place() if path is None else path
    if path is None:
        try:
            os.makedirs(os.path.dirname(where), exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(where, 0o700)
        except OSError as error:
            raise SegmentError(
                f"Shared segments need a directory; {where} cannot be made: {error}. Set TENSORSTASH_DIR to another."
            ) from error
    try:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, PermissionError) as error:
        raise _not_ours(where, "it is a link, no directory, or closed to you") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_ours(where, "it is a link") from error
        raise
    try:
        about = os.fstat(fd)
        if about.st_uid != os.geteuid():
            raise _not_ours(where, f"it belongs to user {about.st_uid}, and you are user {os.geteuid()}")
        if about.st_mode & 0o077:
            raise _not_ours(where, f"its mode is {stat.S_IMODE(about.st_mode):o}", f"chmod 700 {where}, or s")
        yield Directory(where, fd)
    finally:
        os.close(fd)


def _not_ours(path: str, why: str, remedy: str = "S") -> SegmentError:
    inside = os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)  # or else nothing can be made in it
    other = f"{path}{'/' if inside else '-'}{os.geteuid()}"
    return SegmentError(
        f"Shared segments stand in a directory that its owner alone can use; {path} is none: {why}. {remedy}et "
        f"TENSORSTASH_DIR to a directory that is not there yet, for example {other}, and it will be made."
    )


def names(directory: Directory) -> list[Name]:
    """The files of ours in the directory; others are left alone."""
    found = map(name_of, sorted(os.listdir(directory.fd)))
    return [name for name in found if name is not None]


def name_of(text: str) -> Name | None:
    """A file's name in its parts, if it is one of ours."""
    match = _NAME.fullmatch(text)
    return Name(match[1], match[2], match[3] or "") if match else None


@dataclass(frozen=True, slots=True)
class Listed:
    """A segment as its file shows it."""

    name: Name
    nbytes: int
    created: int  # nanoseconds since 1970 UTC
    inode: tuple[int, int]  # and its device


def listed(directory: Directory) -> list[Listed]:
    """All segments, the oldest first."""
    found = []
    for name in names(directory):
        if not name.suffix:
            with suppress(FileNotFoundError):  # somebody else has removed it
                about = os.stat(str(name), dir_fd=directory.fd, follow_symlinks=False)
                found.append(Listed(name, about.st_size, about.st_mtime_ns, (about.st_dev, about.st_ino)))
    return sorted(found, key=lambda segment: (segment.created, str(segment.name)))


def open_segment(directory: Directory, name: Name) -> int | None:
    """A descriptor of the segment that holds a shared lock on it, or `None` if there is no such segment.

    Who removes what nobody uses takes an exclusive lock for a moment. The lock is shared with processes that are handed
    the descriptor, and ends with the last of them, or with the mapping if that lives longer.
    """
    while True:
        try:
            fd = os.open(str(name), OPEN, dir_fd=directory.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _foreign(directory, name, "it is a link") from error
            raise
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise _foreign(directory, name, "it is no regular file")
            if about.st_uid != os.geteuid():
                raise _foreign(directory, name, f"it belongs to user {about.st_uid}")
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed between the two calls


def _foreign(directory: Directory, name: Name, why: str) -> SegmentError:
    return SegmentError(
        f"A segment is a file that tensorstash has made; {directory.join(str(name))} is none: {why}. Remove it."
    )


def attach_name(directory: Directory, name: Name, strict: bool = False) -> Segment | None:
    """The segment of that name, mapped, if there is one."""
    fd = open_segment(directory, name)
    return None if fd is None else mapped(fd, directory.join(str(name)), name.label, strict)


def remove_unused(directory: Directory, name: Name) -> bool:
    """Remove a file that nobody has locked; whether it is gone."""
    try:
        fd = os.open(str(name), OPEN, dir_fd=directory.fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it is none of ours
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # only what has been locked is removed, not what has been given its name since
        if same_file(directory, name, fd):
            os.unlink(str(name), dir_fd=directory.fd)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def same_file(directory: Directory, name: Name, fd: int) -> bool:
    """Whether a name still stands for the file behind a descriptor."""
    try:
        about = os.stat(str(name), dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(about, os.fstat(fd))
