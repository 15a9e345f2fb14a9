"""An unnamed file on disk, for data that can be read only once."""

import errno
import mmap
import os
import tempfile
import weakref
from typing import Any

import pyarrow as pa

from tensorstash.common.text import size_text
from tensorstash.errors import SourceError

_REMEDY = "Set TMPDIR to a directory on a disk with more room."


class Spool:
    """An unnamed file. Its space is freed with its last reader, even if the process is killed."""

    def __init__(self, who: str, least: int = 0) -> None:
        """`who` names the data in messages; `least` is the least number of bytes that the data take."""
        self._who = who
        self.size = 0
        try:
            self._directory = tempfile.gettempdir()
            status = os.statvfs(self._directory)
            with tempfile.TemporaryFile(prefix="tensorstash-") as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise SourceError(f"{who} needs a temporary file, which cannot be made: {error}. {_REMEDY}") from error
        weakref.finalize(self, os.close, self._fd)
        if least > (free := status.f_bavail * status.f_frsize):
            raise self._full(f"needs {size_text(least)} and {size_text(free)} are free in {self._directory}")

    def append(self, data: Any) -> None:
        """Append bytes."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                written = os.write(self._fd, rest)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise self._full(f"has filled {self._directory} after {size_text(self.size)}") from error
            self.size += written
            rest = rest[written:]

    def _full(self, what: str) -> SourceError:
        return SourceError(f"{self._who} is kept in a temporary file during the load; it {what}. {_REMEDY}")

    def mapped(self) -> pa.Buffer:
        """All bytes, mapped: they stay on disk until they are read."""
        return pa.py_buffer(mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ) if self.size else b"")

    def path(self) -> str:
        """A path to the file for this process and, where there is `/proc`, for other processes of this user."""
        shared = f"/proc/{os.getpid()}/fd/{self._fd}"
        return shared if os.path.exists(shared) else f"/dev/fd/{self._fd}"
