"""The directory of shared segments: one per user, on tmpfs, closed to everybody else.

Anyone who may write to a directory can put links, pipes and files of their own into it. So the directory is checked
through its descriptor, and everything in it is opened relative to that descriptor. The descriptor is not kept: a system
that removes the files of users who log out removes the directory too, and it is created again when it is next needed.
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

from tensorstash.common.checks import shown
from tensorstash.errors import SegmentError

_SHM = "/dev/shm"
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK, opening a pipe would hang
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@=-]{0,99}")
_NAME = re.compile(r"(.+)-([0-9a-f]{16})(\.lock|\.tmp\.[0-9a-f]{16})?")


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory: that of shared segments, which only this user can use, or one that the user chose."""

    path: str
    fd: int
    chosen: bool = False

    def join(self, name: "Name") -> str:
        """The path of a file in it, for other programs and messages."""
        return os.path.join(self.path, str(name))


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a file in the directory: `<label>-<key>`, with a suffix if it is not a segment."""

    label: str
    key: str
    suffix: str = ""

    def __str__(self) -> str:
        return f"{self.label}-{self.key}{self.suffix}"


def check_label(label: object, argument: str = "label", remedy: str = "Choose another label.") -> str:
    """Return the label if a file name can begin with it, else raise a `ValueError` that names the argument."""
    if isinstance(label, str) and _LABEL.fullmatch(label):
        return label
    raise ValueError(
        "A label is a text of up to 100 letters, digits or any of _.+@=-, and begins with a letter or digit; got "
        f"{argument}={shown(label)}. {remedy}"
    )


def shared_path() -> str:
    """The path of the directory of shared segments."""
    if chosen := os.environ.get("TENSORSTASH_DIR"):
        return os.path.abspath(os.path.expanduser(chosen))
    if os.path.isdir(_SHM):
        return f"{_SHM}/tensorstash-{os.geteuid()}"
    cache = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.join(os.path.expanduser(cache), "tensorstash")


@contextmanager
def open_directory(path: str | None = None) -> Iterator[Directory]:
    """Open the directory at `path`; with `None` that of shared segments, which is created if it does not exist."""
    path = _create() if path is None else path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            raise _not_ours(path, "it is a link, not a directory, or closed to you") from error
        raise
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise _not_ours(path, f"it belongs to user {status.st_uid}, and you are user {os.geteuid()}")
        if status.st_mode & 0o777 != 0o700:
            mode = stat.S_IMODE(status.st_mode)
            raise _not_ours(path, f"its mode is {mode:o}, which chmod 700 {path} mends")
        yield Directory(path, fd)
    finally:
        os.close(fd)


def _create() -> str:
    path = shared_path()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    except OSError as error:
        raise SegmentError(
            f"Shared segments need a directory; {path} cannot be created: {error}. Set TENSORSTASH_DIR to another one."
        ) from error
    return path


def _not_ours(path: str, why: str) -> SegmentError:
    is_usable = os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
    example = f"{path}{'/' if is_usable else '-'}{os.geteuid()}"
    return SegmentError(
        f"Shared segments need a directory that only its owner can use; {path} is not one: {why}. Set "
        f"TENSORSTASH_DIR to a directory that does not exist yet, for example {example}: it will be created."
    )


# The files in it


def open_file(directory: Directory, name: Name, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a regular file of this user, created with `os.O_CREAT`; links are not followed."""
    try:
        fd = os.open(str(name), flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=directory.fd)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        why = {errno.ELOOP: "it is a link", errno.EISDIR: "it is a directory"}.get(error.errno or 0)
        if isinstance(error, PermissionError) and (there := status_of(directory, name)) and stat.S_ISREG(there.st_mode):
            why = "it is closed to you"
        if why is None and flags & os.O_CREAT:
            raise not_writable(directory, error) from error
        raise not_a_file(directory, name, why or f"it cannot be opened: {error.strerror}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        why = "it is not a regular file"
    elif status.st_uid != os.geteuid():
        why = f"it belongs to user {status.st_uid}"
    else:
        return fd
    os.close(fd)
    raise not_a_file(directory, name, why)


def not_a_file(directory: Directory, name: Name, why: str) -> SegmentError:
    """The error for a name of ours that belongs to something else."""
    kind = "A lock" if name.suffix else "A segment"
    remedy = ", or choose a path in a directory that nobody else can write to" if directory.chosen else ""
    return SegmentError(
        f"{kind} is a regular file that tensorstash made and you can read; {directory.join(name)} is not one: {why}. "
        f"Remove it{remedy}."
    )


def not_writable(directory: Directory, error: OSError) -> SegmentError:
    """The error for a directory in which no file can be created or removed."""
    if directory.chosen:
        return SegmentError(
            f"A stash is written to a directory that you can write to; no file can be created or removed in "
            f"{directory.path}: {error.strerror}. Choose another path."
        )
    return SegmentError(
        f"Shared segments are files; none can be created or removed in {directory.path}: {error.strerror}. Make room "
        "there (ts.shared.list() shows what it holds), or set TENSORSTASH_DIR to a directory that you can write to."
    )


def unlink(directory: Directory, name: Name) -> None:
    """Remove a file of ours."""
    try:
        os.unlink(str(name), dir_fd=directory.fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_writable(directory, error) from error


def status_of(directory: Directory, name: Name) -> os.stat_result | None:
    """The status of a file, or of a link itself; `None` if there is none."""
    try:
        return os.stat(str(name), dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def names(directory: Directory) -> list[Name]:
    """The names of segments, locks and temporary files, ascending; other files are left alone."""
    return [name for text in sorted(os.listdir(directory.fd)) if (name := name_of(text)) is not None]


def name_of(text: str) -> Name | None:
    """The parts of a file name; `None` if it is not one of ours."""
    match = _NAME.fullmatch(text)
    return Name(match[1], match[2], match[3] or "") if match else None


def segments_in(directory: Directory) -> list[tuple[Name, os.stat_result]]:
    """All segments with the status of their files, the oldest first."""
    found = ((name, status_of(directory, name)) for name in names(directory) if not name.suffix)
    segments = [(name, status) for name, status in found if status is not None]
    return sorted(segments, key=lambda segment: segment[1].st_mtime_ns)  # equal times stay in the order of the names


def remove_unused(directory: Directory, name: Name) -> bool:
    """Remove a file unless a process has locked it, or a link itself; returns whether it is gone.

    A published file keeps its temporary name if its process was killed between the two calls. That name is removed
    although the file is locked.
    """
    try:
        if (status := status_of(directory, name)) and stat.S_ISLNK(status.st_mode):
            unlink(directory, name)
            return True
        fd = open_file(directory, name, READ)
    except FileNotFoundError:
        return True
    except SegmentError:
        return False  # not our file, or unreadable: it may be in use
    try:
        if not (name.suffix and os.fstat(fd).st_nlink > 1):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # another file may have got the name since
        if same_file(directory, name, fd):
            unlink(directory, name)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def same_file(directory: Directory, name: Name, fd: int) -> bool:
    """Whether a name still belongs to the file of a descriptor."""
    status = status_of(directory, name)
    return status is not None and os.path.samestat(status, os.fstat(fd))


def open_segment(directory: Directory, name: Name) -> int | None:
    """A descriptor of the segment with a shared lock on it; `None` if there is no such segment.

    Removing unused segments takes an exclusive lock for a moment. The shared lock passes to processes that receive the
    descriptor, and ends with the last descriptor or mapping of it.
    """
    while True:
        try:
            fd = open_file(directory, name, READ)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed between the two calls
