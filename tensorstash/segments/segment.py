"""A finished segment: a whole file, checked and mapped copy-on-write."""

import errno
import math
import mmap
import os
import sys
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import torch

from tensorstash.common.dtypes import DTYPES, Int64s
from tensorstash.common.release import close_with
from tensorstash.errors import SegmentError
from tensorstash.segments.format import damaged, pages, parse
from tensorstash.segments.populate import POPULATE_READ, populate

_CHUNK = 1 << 24
_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # Python's mmap has a name for it from 3.13 on


class Segment:
    """A finished segment, mapped copy-on-write: a write in this process reaches neither the file nor other mappings."""

    def __init__(self, fd: int, path: str | None = None, label: str | None = None, strict: bool = False) -> None:
        """Check the file behind a descriptor and map it. The segment owns the descriptor.

        `path` is the file's name if it has one, `label` is that of a shared segment, and `strict` maps it read-only.
        """
        header = parse(fd, path, label)
        self.entries, self.metadata, self.crc = header.entries, header.metadata, header.crc
        self.key = header.key  # of the load that made the file; `None` of a private one
        self._checksums = header.checksums
        self.fd = fd
        self.path = path
        self.label = label
        self.strict = strict
        self.size = os.fstat(fd).st_size
        writable = 0 if strict else mmap.PROT_WRITE
        self.memory = mmap.mmap(fd, self.size, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=mmap.PROT_READ | writable)
        close_with(self, fd)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor over the mapping, with a storage of its own."""
        entry = self.entries[name]
        flat = self.items(entry.begin, math.prod(entry.shape), DTYPES[entry.dtype][1])
        return flat.view(entry.dtype).view(entry.shape)

    def blob(self, name: str) -> torch.Tensor:
        """A tensor that is small beside the columns, compared with its checksum in the header."""
        if name not in self.entries:
            raise self.damaged(f"it has no tensor {name!r}")
        entry = self.entries[name]
        if zlib.crc32(memoryview(self.memory)[entry.begin : entry.begin + entry.nbytes]) != self._checksums.get(name):
            raise self.damaged(f"the checksum of {name!r} is wrong")
        return self.tensor(name)

    def items(self, begin: int, count: int, numpy_dtype: str) -> torch.Tensor:
        """`count` items of the mapping from byte `begin` on, as a flat tensor."""
        if not count:
            return torch.from_numpy(np.empty(0, numpy_dtype))
        array = np.frombuffer(self.memory, numpy_dtype, count, begin)
        if not self.strict:
            return torch.from_numpy(array)
        with warnings.catch_warnings():  # torch has no read-only tensors, and warns about that
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)

    def damaged(self, why: str) -> SegmentError:
        """The error for content that contradicts itself."""
        return damaged(self.path, why, self.label)

    def private_bytes(self) -> int | None:
        """Bytes of the pages that this process has written to; `None` where the system has no `/proc/self/smaps`."""
        begin = np.frombuffer(self.memory, np.uint8).ctypes.data
        try:
            with open("/proc/self/smaps") as file:
                lines = file.read().splitlines()
        except OSError:
            return None
        inside, total = False, 0
        for line in lines:
            first, *rest = line.split()
            if not first.endswith(":"):
                low, high = (int(end, 16) for end in first.split("-"))
                inside = begin <= low and high <= begin + pages(self.size)
            elif inside and first == "Anonymous:":
                total += 1024 * int(rest[0])
        return total

    def advise_random(self) -> None:
        """Tell the kernel that windows are read from anywhere: reading ahead would only evict other pages."""
        if hasattr(mmap, "MADV_RANDOM"):
            self.memory.madvise(mmap.MADV_RANDOM)

    @property
    def is_saved(self) -> bool:
        """Whether it lies in a file that a user named, most likely on a disk."""
        return self.path is not None and self.label is None

    def will_need(self, begins: Int64s, ends: Int64s) -> None:
        """Have the bytes of these ranges, which begin at pages, read while this process does something else."""
        # not posix_fadvise: it lets go of the interpreter's lock, which a busy thread may keep for 5 ms each time
        for begin, end in zip(begins.tolist(), ends.tolist()):
            self.memory.madvise(mmap.MADV_WILLNEED, begin, end - begin)

    def populate(self) -> None:
        """Map all pages at once, which takes a third of the time of the page faults that it saves."""
        populate(self.memory, POPULATE_READ, 0, self.size)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The bytes of the file, without what this process wrote into its mapping, and where each piece begins."""
        for begin in range(0, self.size, _CHUNK):
            yield begin, os.pread(self.fd, _CHUNK, begin)


def mapped(fd: int, path: str | None = None, label: str | None = None, strict: bool = False) -> Segment:
    """`Segment` of the same arguments; if that fails, the descriptor is closed."""
    try:
        return Segment(fd, path, label, strict)
    except BaseException:
        os.close(fd)
        raise


def open_saved(path: str) -> Segment:
    """Map a saved segment, which may be larger than memory."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without O_NONBLOCK, opening a pipe would hang
    except ValueError as error:
        raise SegmentError(f"The name of a file has no NUL character; got {path!r}. Choose another path.") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise SegmentError(
                f"The name of a file is at most 255 bytes, and its path 4,095; {path[:40]!r}... is longer. Choose "
                "another path."
            ) from error
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
            raise damaged(path, "it is not a regular file") from error
        raise
    segment = mapped(fd, path)
    segment.advise_random()
    return segment
