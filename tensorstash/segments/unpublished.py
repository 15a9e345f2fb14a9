"""A file that gets its name when it is whole, so that a process that finds a name finds a whole segment.

The process that writes it may be killed at any moment: the system then frees a file that has no name. Where a file
system cannot hold files without a name, the file has a temporary one, and is locked as long as its process lives.
"""

import fcntl
import os
import secrets
from contextlib import suppress

from tensorstash.common.forks import close_kept, keep_from_children
from tensorstash.segments.attach import attach_name
from tensorstash.segments.directory import READ, Directory, Name, not_writable, open_file, opened
from tensorstash.segments.durable import sync_directory, sync_file
from tensorstash.segments.limits import Limit, directory_limit, disk_limit, memory_limits
from tensorstash.segments.segment import Segment, mapped

NO_KEY = "0" * 16
_DESCRIPTORS = "/proc/self/fd"


class UnpublishedFile:
    """An empty file in the directory, to be filled and then published. If its process ends first, it is freed."""

    def __init__(self, directory: Directory, label: str) -> None:
        self.directory = directory
        self._temporary: Name | None = None
        self.fd = self._create(label)
        keep_from_children(self.fd)

    def _create(self, label: str) -> int:
        mode = 0o666 if self.directory.chosen else 0o600  # less the umask
        if hasattr(os, "O_TMPFILE") and os.path.isdir(_DESCRIPTORS):
            # some file systems do not support it
            with suppress(OSError):
                return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=self.directory.fd)
        while True:  # other processes leave the name alone while the file is locked
            self._temporary = temporary_name(label)
            fd = open_file(self.directory, self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            _lock_shared(fd)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def limits(self) -> list[Limit]:
        """The limits on the number of bytes that can be written to it."""
        if self.on_disk:
            return [disk_limit(self.fd, self.directory.path)]
        return [*memory_limits(), directory_limit(self.fd, self.directory.path)]

    @property
    def on_disk(self) -> bool:
        """Whether it may be larger than memory."""
        return self.directory.chosen

    def publish(self, name: Name) -> Segment:
        """Give the file its name and map it; if another file has the name already, map that one."""
        os.fchmod(self.fd, 0o400)
        sync_file(self.fd)
        mine = mapped(self.reader(), self.directory.join(name), name.label)
        while not self._link(name):
            theirs = attach_name(self.directory, name)
            if theirs is not None:
                return theirs
        return mine

    def publish_as(self, file: str, replace: bool) -> None:
        """Give the file a name of the user's choice. `FileExistsError` if there is one, unless it is to be replaced."""
        try:
            sync_file(self.fd)
            if replace:
                self._replace(file)
            else:
                self._link_in(self.directory, file)
        except FileExistsError:
            raise
        except OSError as error:
            raise not_writable(self.directory, error) from error

    def _replace(self, file: str) -> None:
        here = self.directory.fd
        if self._temporary is None:  # a file without a name cannot take the place of another
            temporary = temporary_name(f".{file}")
            self._link_in(self.directory, temporary)
            self._temporary = temporary
        os.replace(str(self._temporary), file, src_dir_fd=here, dst_dir_fd=here)
        sync_directory(here)

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
        """Give the file its name; `False` if another file has it."""
        try:
            self._link_in(self.directory, name)
        except FileExistsError:
            return False
        except FileNotFoundError:
            # The directory was removed meanwhile. A file that has lost its only name cannot get another one, but its
            # mapping works without.
            with suppress(FileNotFoundError, FileExistsError), opened() as directory:
                self._link_in(directory, name)
        except OSError as error:
            raise not_writable(self.directory, error) from error
        return True

    def _link_in(self, directory: Directory, name: Name | str) -> None:
        there = directory.fd
        if self._temporary is None:
            # Python calls linkat(AT_SYMLINK_FOLLOW) only if it is given a directory
            os.link(f"{_DESCRIPTORS}/{self.fd}", str(name), dst_dir_fd=there, follow_symlinks=True)
        else:
            here = self.directory.fd
            os.link(str(self._temporary), str(name), src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
        sync_directory(there)

    def close(self) -> None:
        """Close its descriptor; if it was not published, that frees it."""
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(str(self._temporary), dir_fd=self.directory.fd)
        close_kept(self.fd)


def temporary_name(label: str) -> Name:
    """A name that no other file has."""
    return Name(label, NO_KEY, f".tmp.{secrets.token_hex(8)}")


def _lock_shared(fd: int) -> None:
    """Says that the file is in use; where the file system has no locks, nothing does."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH)
