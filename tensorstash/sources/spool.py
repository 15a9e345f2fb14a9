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

    def __init__(self, who: str) -> None:
        """`who` names the data in messages."""
        self._who = who
        self.size = 0
        try:
            self._directory = tempfile.gettempdir()
            with tempfile.TemporaryFile(prefix="tensorstash-") as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise SourceError(f"{who} needs a temporary file, which cannot be made: {error}. {_REMEDY}") from error
        weakref.finalize(self, os.close, self._fd)

    def append(self, data: Any) -> None:
        """Append bytes."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                written = os.write(self._fd, rest)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise SourceError(
                    f"{self._who} is kept in a temporary file during the load; it has filled {self._directory} after "
                    f"{size_text(self.size)}. {_REMEDY}"
                ) from error
            self.size += written
            rest = rest[written:]

    def mapped(self) -> pa.Buffer:
        """All bytes, mapped: they stay on disk until they are read."""
        return pa.py_buffer(mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ) if self.size else b"")

    def path(self) -> str:
        """A path to the file for this process and, where there is `/proc`, for other processes of this user."""
        shared = f"/proc/{os.getpid()}/fd/{self._fd}"
        return shared if os.path.exists(shared) else f"/dev/fd/{self._fd}"
