"""One copy per machine: the first process builds a segment, the others wait for it and attach it.

A file gets its name when it is whole, so every named file is a whole segment. A name is given once: several processes
may build the same segment, the first to publish wins, and the others attach its file. A process may be killed at any
moment: the system then frees a file that has no name. On a file system without unnamed files it has a temporary name,
and is locked as long as its process lives.
"""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import blake2b

from tensorstash.common.forks import close_kept, keep_from_children
from tensorstash.segments.directory import READ, Directory, Name, not_writable, open_directory, open_file
from tensorstash.segments.draft import resize, write
from tensorstash.segments.limits import Limit, check_free, directory_limit, disk_limit, memory_limits
from tensorstash.segments.lock import acquire, lock_file, note
from tensorstash.segments.segment import Segment, attach_name

NO_KEY = "0" * 16
_DESCRIPTORS = "/proc/self/fd"
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


class UnpublishedFile:
    """An empty file in a directory, to be filled and then published. If its process ends first, it is freed."""

    def __init__(self, directory: Directory, label: str) -> None:
        self.directory = directory
        self._temporary: Name | None = None
        self.fd = self._create(label)
        keep_from_children(self.fd)

    def _create(self, label: str) -> int:
        mode = 0o666 if self.directory.chosen else 0o600  # the system subtracts the umask
        if hasattr(os, "O_TMPFILE") and os.path.isdir(_DESCRIPTORS):
            # some file systems do not support it
            with suppress(OSError):
                return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=self.directory.fd)
        while True:  # other processes leave the name alone while the file is locked
            self._temporary = _temporary_name(label)
            fd = open_file(self.directory, self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            _lock_shared(fd)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def limits(self) -> list[Limit]:
        """The limits on the number of bytes that can be written to it."""
        if self.directory.chosen:
            return [disk_limit(self.fd, self.directory.path)]
        return [*memory_limits(), directory_limit(self.fd, self.directory.path)]

    def publish(self, name: Name) -> Segment:
        """Give the file its name and map it; if another file has the name already, map that one."""
        os.fchmod(self.fd, 0o400)
        os.fsync(self.fd)
        mine = Segment(self.reader(), self.directory.join(name), name.label)
        while not self._link(name):
            if (theirs := attach_name(self.directory, name)) is not None:
                return theirs
        return mine

    def publish_as(self, file: str, replace: bool) -> None:
        """Give the file a name of the user's choice; `FileExistsError` if it is taken and not to be replaced."""
        try:
            os.fsync(self.fd)  # its bytes reach the disk before its name does
            if replace:
                self._replace(file)
            else:
                self._link_in(self.directory, file)
        except FileExistsError:
            raise
        except OSError as error:
            raise not_writable(self.directory, error) from error

    def _replace(self, file: str) -> None:
        directory = self.directory.fd
        if self._temporary is None:  # an unnamed file cannot replace another
            temporary = _temporary_name(f".{file}")
            self._link_in(self.directory, temporary)
            self._temporary = temporary
        os.replace(str(self._temporary), file, src_dir_fd=directory, dst_dir_fd=directory)
        sync_directory(directory)

    def reader(self) -> int:
        """A read-only descriptor of the same file, which holds a shared lock."""
        try:
            if self._temporary is None:
                fd = os.open(f"{_DESCRIPTORS}/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
            else:
                fd = open_file(self.directory, self._temporary, READ)
        except FileNotFoundError:  # the directory was removed
            fd = os.dup(self.fd)
        _lock_shared(fd)
        return fd

    def _link(self, name: Name) -> bool:
        try:
            self._link_in(self.directory, name)
        except FileExistsError:
            return False
        except FileNotFoundError:
            # The directory was removed meanwhile. A file that has lost its only name cannot get another one; its
            # mapping works without.
            with suppress(FileNotFoundError, FileExistsError), open_directory() as directory:
                self._link_in(directory, name)
        except OSError as error:
            raise not_writable(self.directory, error) from error
        return True

    def _link_in(self, directory: Directory, name: Name | str) -> None:
        target = directory.fd
        if self._temporary is None:
            # Python calls linkat(AT_SYMLINK_FOLLOW) only with a directory
            os.link(f"{_DESCRIPTORS}/{self.fd}", str(name), dst_dir_fd=target, follow_symlinks=True)
        else:
            source = self.directory.fd
            os.link(str(self._temporary), str(name), src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        sync_directory(target)

    def close(self) -> None:
        """Close its descriptor; if it was not published, that frees it."""
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(str(self._temporary), dir_fd=self.directory.fd)
        close_kept(self.fd)


def sync_directory(fd: int) -> None:
    """Wait until the names in a directory are on disk, where its file system can do that."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def _temporary_name(label: str) -> Name:
    """A new name for a file of a label."""
    return Name(label, NO_KEY, f".tmp.{secrets.token_hex(8)}")


def _lock_shared(fd: int) -> None:
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(fd, fcntl.LOCK_SH)


Build = Callable[[UnpublishedFile], None]  # writes a whole segment to the file


def obtain(name: Name, build: Build, timeout: float | None) -> Segment:
    """The segment of that name: attached if it exists, otherwise built by one of the processes that ask for it.

    Raises `TimeoutError` if another process has not finished within `timeout` seconds, or the error of another process
    that failed meanwhile.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with open_directory() as directory:
            if (segment := attach_name(directory, name)) is not None:
                return segment
            with lock_file(directory, name) as lock:
                if acquire(lock, name, deadline):
                    return attach_name(directory, name) or _build_shared(directory, name, lock, build)


def _build_shared(directory: Directory, name: Name, lock: int, build: Build) -> Segment:
    target = UnpublishedFile(directory, name.label)
    segment = run_build(target, lock, build, lambda: target.publish(name))
    segment.populate()
    return segment


def run_build(target: UnpublishedFile, lock: int, build: Build, publish: Callable[[], Segment]) -> Segment:
    """Build a segment and publish it; the number of this process and the error of a failure go into the lock file."""
    note(lock, {"pid": os.getpid()})
    try:
        build(target)
        return publish()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise  # the next process in line takes over
    except BaseException as error:
        note(lock, {"error": type(error).__name__, "message": str(error)})
        raise
    finally:
        target.close()


def share_copy(segment: Segment, label: str) -> Segment:
    """A copy of a segment under a label. Its key is a hash of all its bytes."""
    digest = blake2b(digest_size=32)
    with open_directory() as directory, closing(UnpublishedFile(directory, label)) as target:
        check_free(
            segment.size,
            target.limits(),
            "A stash must fit into free memory",
            f"a copy of it for share({label!r})",
            "Remove what nobody needs: ts.shared.list(), ts.shared.remove(label), ts.shared.prune(...).",
        )
        resize(target.fd, segment.size)
        for start, chunk in segment.chunks():
            digest.update(chunk)
            write(target.fd, memoryview(chunk), start)
        return target.publish(Name(label, digest.hexdigest()[:16]))
