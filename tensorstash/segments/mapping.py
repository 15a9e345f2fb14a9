"""Reading a segment: a whole file mapped copy-on-write, and saved elsewhere."""

import contextlib
import math
import mmap
import os
import secrets
import sys
import warnings
import weakref
from collections.abc import Iterator

import numpy as np
import torch

from tensorstash.common.dtypes import DTYPES
from tensorstash.segments.format import pages, parse
from tensorstash.segments.populate import POPULATE_READ, populate

_CHUNK = 1 << 24
_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # named in mmap from Python 3.13


class Segment:
    """A finished segment, mapped copy-on-write: a stray write in this process reaches no other and not the file."""

    def __init__(self, fd: int, path: str | None = None, label: str | None = None, strict: bool = False) -> None:
        """Check the file behind a descriptor, which is owned from here on, and map it.

        `path` is its name if it has one, `label` is given if it is shared, and `strict` maps it read-only.
        """
        self.entries, self.metadata, self.crc = parse(fd, path, label)
        self.fd = fd
        self.path = path
        self.label = label
        self.strict = strict
        self.size = os.fstat(fd).st_size
        writable = 0 if strict else mmap.PROT_WRITE
        self.memory = mmap.mmap(fd, self.size, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=mmap.PROT_READ | writable)
        weakref.finalize(self, os.close, fd)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor over the mapping, with a storage of its own."""
        entry = self.entries[name]
        flat = self.items(entry.begin, math.prod(entry.shape), DTYPES[entry.dtype][1])
        return flat.view(entry.dtype).view(entry.shape)

    def items(self, begin: int, count: int, numpy_dtype: str) -> torch.Tensor:
        """`count` items of the mapping from byte `begin` on, as a flat tensor."""
        if not count:
            return torch.from_numpy(np.empty(0, numpy_dtype))
        array = np.frombuffer(self.memory, numpy_dtype, count, begin)
        if not self.strict:
            return torch.from_numpy(array)
        with warnings.catch_warnings():  # torch has no read-only tensors, and says so
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)

    def private_bytes(self) -> int | None:
        """Bytes of the mapping that this process has written to, by pages; `None` where the system does not tell."""
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
        """Tell the kernel that windows are read from anywhere: reading ahead would only evict."""
        if hasattr(mmap, "MADV_RANDOM"):
            self.memory.madvise(mmap.MADV_RANDOM)

    def populate(self) -> None:
        """Map all pages at once, which takes a third of the time of the faults that it spares."""
        populate(self.memory, POPULATE_READ, 0, self.size)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The bytes of the file, whatever this process wrote into its mapping, and where each piece begins."""
        for begin in range(0, self.size, _CHUNK):
            yield begin, os.pread(self.fd, _CHUNK, begin)

    def save(self, path: str) -> None:
        """Copy the file to `path`, which appears only when it is whole."""
        draft = f"{path}.{secrets.token_hex(8)}.tmp"
        try:
            with open(draft, "xb") as file:
                for _, chunk in self.chunks():
                    file.write(chunk)
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            raise


def mapped(fd: int, path: str | None = None, label: str | None = None, strict: bool = False) -> Segment:
    """`Segment` of the same arguments; the descriptor is closed if it cannot be one."""
    try:
        return Segment(fd, path, label, strict)
    except BaseException:
        os.close(fd)
        raise


def open_file(path: str) -> Segment:
    """Map a saved segment."""
    return mapped(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
