"""Files that survive a loss of power: their bytes reach the disk before their name does. On tmpfs it costs nothing."""

import errno
import os
from contextlib import suppress

_NOT_SUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


def sync_file(fd: int) -> None:
    """Wait until the bytes of a file are on disk. Called before the file gets its name."""
    os.fsync(fd)


def sync_directory(fd: int) -> None:
    """Wait until the names in a directory are on disk, where its file system can do that."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def sync_directory_of(path: str) -> None:
    """The same for the directory in which a path lies; one that may be written but not read is left out."""
    with suppress(PermissionError):
        fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)
