"""Writing a segment: it is laid out and filled, and the header, written last, makes it whole.

A file in memory gets its pages when they are written: the kernel need not clear them first. A full file system refuses
such a write, but kills a process that writes through a mapping. So bytes are allocated before they are mapped, and all
bytes of a file on disk at once.
"""

import errno
import math
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import DTYPES
from tensorstash.common.text import size_text
from tensorstash.errors import NoMemoryError, SegmentError
from tensorstash.segments.format import PAGE, TensorInfo, header_bytes, pages
from tensorstash.segments.limits import map_file
from tensorstash.segments.segment import POPULATE_WRITE, close_with, populate

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class Draft:
    """A segment that is being written: its tensors have their places, and it has no header yet."""

    def __init__(
        self,
        tensors: Iterable[tuple[str, torch.dtype, tuple[int, ...]]],
        room: int,
        fd: int | None = None,
        on_disk: bool = False,
        blob_page: int = PAGE,
    ) -> None:
        """Lay out the tensors after `room` bytes for a header. Blobs begin at multiples of `blob_page` bytes.

        `fd` is an empty file, which the caller closes; with `None` the draft makes an unnamed file in memory. A file
        `on_disk` may be larger than memory, and is allocated at once.
        """
        self._on_disk, self._blob_page = on_disk, blob_page
        self.start = end = pages(room)
        self.tensors: dict[str, TensorInfo] = {}
        self.checksums: dict[str, int] = {}  # CRC-32 of each blob
        for name, dtype, shape in tensors:
            self.tensors[name] = info = TensorInfo(name, DTYPES[dtype][0], shape, end)
            end += pages(info.nbytes)
        self.end = self._laid_out = end
        self.fd = _unnamed_file() if fd is None else fd
        if fd is None:
            close_with(self, self.fd)
        resize(self.fd, end)
        if on_disk:
            _allocate(self.fd, 0, end)

    def write(self, name: str, row: int, values: NDArray[Any]) -> None:
        """Write the rows `row, row + 1, ...` of a tensor."""
        info = self.tensors[name]
        if row < 0 or row + len(values) > info.shape[0]:
            raise IndexError(f"rows must lie in [0, {info.shape[0]}); got [{row}, {row + len(values)})")
        row_bytes = info.nbytes // info.shape[0] if info.shape[0] else 0
        write(self.fd, _bytes(values), info.start + row * row_bytes)

    def read(self, name: str, row: int, count: int) -> NDArray[Any]:
        """A copy of the rows `row, row + 1, ...` of a flat tensor; bfloat16 as uint16."""
        info = self.tensors[name]
        size = info.dtype.itemsize
        return np.frombuffer(os.pread(self.fd, count * size, info.start + row * size), DTYPES[info.dtype][1])

    def blob(self, name: str, values: NDArray[Any], dtype: torch.dtype) -> None:
        """Append a whole tensor whose size was not known at the start; the header will hold its checksum."""
        self.tensors[name] = info = TensorInfo(name, DTYPES[dtype][0], values.shape, self.end)
        self.end += pages(info.nbytes, self._blob_page)
        resize(self.fd, self.end)
        self.checksums[name] = zlib.crc32(_bytes(values))
        write(self.fd, _bytes(values), info.start)

    def array(self, name: str) -> NDArray[Any]:
        """A tensor as a writable numpy array over the file itself, bfloat16 as uint16 with its bits."""
        info = self.tensors[name]
        if not info.nbytes:
            return np.empty(info.shape, DTYPES[info.dtype][1])
        _allocate(self.fd, info.start, pages(info.nbytes))
        if not self._on_disk:  # on a disk, empty pages would fill memory and then be written
            populate(self._memory, POPULATE_WRITE, info.start, pages(info.nbytes))
        flat = np.frombuffer(self._memory, DTYPES[info.dtype][1], math.prod(info.shape), info.start)
        return flat.reshape(info.shape)

    @cached_property
    def _memory(self) -> mmap.mmap:
        """The file as it was laid out, mapped for all arrays. Threads that ask for it at once may map it twice."""
        return map_file(self.fd, self._laid_out)

    def seal(self, metadata: Mapping[str, Any], key: str | None = None) -> None:
        """Write the header, which makes the file a whole segment; `key` is that of the load."""
        header = header_bytes(self.tensors.values(), self.start, self.end, metadata, self.checksums, key=key)
        if len(header) > self.start:
            raise SegmentError(f"The header needs {len(header):,} bytes; {self.start:,} were laid out for it.")
        write(self.fd, memoryview(header.ljust(self.start)), 0)


def resize(fd: int, nbytes: int) -> None:
    """Truncate or extend a file; `NoMemoryError` if there is no room for it."""
    with _room_for(nbytes):
        os.ftruncate(fd, nbytes)


def _allocate(fd: int, start: int, nbytes: int) -> None:
    if nbytes and hasattr(os, "posix_fallocate"):
        with _room_for(nbytes):
            os.posix_fallocate(fd, start, nbytes)


@contextmanager
def _room_for(nbytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoMemoryError if error.errno in _FULL else SegmentError
        raise kind(
            f"A stash needs room for all its bytes; {size_text(nbytes)} cannot be written: {error.strerror}. Make "
            "room, or load fewer columns or a narrower dtype."
        ) from error


def write(fd: int, data: memoryview, start: int) -> None:
    """Write all of `data` from byte `start` of the file on."""
    done = 0
    with _room_for(len(data)):
        while done < len(data):
            done += os.pwrite(fd, data[done:], start + done)


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _unnamed_file() -> int:
    """A file in memory that the system frees with its last descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tensorstash", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
