"""A file that has no name until it is whole, so that whoever finds a name finds all of it.

Its process may be killed at any moment: the system then frees what has no name. Where files without a name are not to
be had, a temporary one stands in, locked as long as its process lives.
"""

import fcntl
import os
import secrets
from contextlib import suppress

from tensorstash.common.forks import close_kept, keep_from_children
from tensorstash.segments.directory import OPEN, Directory, Name, attach_name, opened
from tensorstash.segments.limits import Limit, directory_limit, memory_limits
from tensorstash.segments.mapping import Segment, mapped

_NO_KEY = "0" * 16
_DESCRIPTORS = "/proc/self/fd"


class Unpublished:
    """An empty file in the directory that gets a name when it is whole, and is gone with its process before."""

    def __init__(self, directory: Directory, label: str) -> None:
        self.directory = directory
        self.label = label
        self._temporary: str | None = None
        self.fd = self._create()
        keep_from_children(self.fd)

    def _create(self) -> int:
        if hasattr(os, "O_TMPFILE") and os.path.isdir(_DESCRIPTORS):
            # some file systems have none
            with suppress(OSError):
                return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=self.directory.fd)
        while True:  # a name that others leave alone while the file is locked
            self._temporary = str(Name(self.label, _NO_KEY, f".tmp.{secrets.token_hex(8)}"))
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._temporary, flags, 0o600, dir_fd=self.directory.fd)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def limits(self) -> list[Limit]:
        """What limits the bytes that can be written to it."""
        return [*memory_limits(), directory_limit(self.fd, self.directory.path)]

    def publish(self, name: Name) -> Segment:
        """Give it its name and map it; or map what has the name already."""
        os.fchmod(self.fd, 0o400)
        mine = mapped(self._reader(), self.directory.join(str(name)), name.label)
        while not self._link(name):
            theirs = attach_name(self.directory, name)
            if theirs is not None:
                return theirs
        return mine

    def _reader(self) -> int:
        """A descriptor of the same file that cannot write to it, and holds a shared lock."""
        try:
            if self._temporary is None:
                fd = os.open(f"{_DESCRIPTORS}/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
            else:
                fd = os.open(self._temporary, OPEN, dir_fd=self.directory.fd)
        except FileNotFoundError:  # the directory was removed
            fd = os.dup(self.fd)
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd

    def _link(self, name: Name) -> bool:
        """Give the file its name; `False` if another has it."""
        try:
            self._link_in(self.directory, str(name))
        except FileExistsError:
            return False
        except FileNotFoundError:
            # the directory was removed meanwhile; a file that had a name cannot get another, but is as good without
            with suppress(FileNotFoundError, FileExistsError), opened() as directory:
                self._link_in(directory, str(name))
        return True

    def _link_in(self, directory: Directory, name: str) -> None:
        if self._temporary is None:
            # Python calls linkat(AT_SYMLINK_FOLLOW) only where a directory is given
            os.link(f"{_DESCRIPTORS}/{self.fd}", name, dst_dir_fd=directory.fd, follow_symlinks=True)
        else:
            os.link(self._temporary, name, src_dir_fd=self.directory.fd, dst_dir_fd=directory.fd, follow_symlinks=False)

    def close(self) -> None:
        """Close its descriptor, and with it what has not been published."""
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self.directory.fd)
        close_kept(self.fd)
