"""A finished segment: a whole file, checked and mapped copy-on-write; and how processes attach shared ones."""

import atexit
import errno
import io
import math
import mmap
import os
import stat
import sys
import warnings
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.common.text import cut
from tensorstash.common.threads import map_in_threads, threads
from tensorstash.errors import SegmentError
from tensorstash.segments.directory import (
    Directory,
    Name,
    check_label,
    name_of,
    open_directory,
    open_segment,
    segments_in,
)
from tensorstash.segments.format import damaged, parse
from tensorstash.segments.limits import map_file

_CHUNK = 1 << 24
_LONGEST_PATH = 200  # characters in a message
POPULATE_READ, POPULATE_WRITE = 22, 23  # MADV_POPULATE_... of Linux 5.14, which mmap does not name
_POPULATED = 1 << 26  # bytes whose pages are mapped at a time
_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # Python's mmap has a name for it from 3.13 on


class Segment:
    """A finished segment, mapped copy-on-write: a write in this process reaches neither the file nor other mappings."""

    def __init__(self, fd: int, path: str | None = None, label: str | None = None, strict: bool = False) -> None:
        """Check the file behind a descriptor and map it. The segment owns the descriptor, also if this fails.

        `path` is the file's name if it has one, `label` is that of a shared segment, and `strict` maps it read-only.
        """
        close_with(self, fd)
        header = parse(fd, path, label)
        self.tensors, self.metadata, self.crc = header.tensors, header.metadata, header.crc
        self.key = header.key  # of the load that made the file; `None` for a private stash
        self.checksums = header.checksums  # CRC-32 of each blob
        self.fd = fd
        self.path = path
        self.label = label
        self.strict = strict
        self.size = os.fstat(fd).st_size
        writable = 0 if strict else mmap.PROT_WRITE
        self.memory = map_file(fd, self.size, mmap.MAP_PRIVATE | _NORESERVE, mmap.PROT_READ | writable)
        # of a file on disk the kernel must not read ahead, and 2 MB for a huge page least of all: windows are read from
        # anywhere, and other pages would be evicted
        advice = "MADV_RANDOM" if self.is_saved else "MADV_HUGEPAGE"
        with suppress(AttributeError, OSError):  # another system, or a kernel without huge pages
            self.memory.madvise(getattr(mmap, advice))

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor over the mapping, with a storage of its own."""
        info = self.tensors[name]
        flat = self.items(info.start, math.prod(info.shape), info.dtype)
        return flat if len(info.shape) == 1 else flat.view(info.shape)

    def blob(self, name: str) -> torch.Tensor:
        """A tensor that is small beside the columns, checked against its checksum in the header."""
        if name not in self.tensors:
            raise self.damaged(f"it has no tensor {name!r}")
        info = self.tensors[name]
        if zlib.crc32(memoryview(self.memory)[info.start : info.start + info.nbytes]) != self.checksums.get(name):
            raise self.damaged(f"the checksum of {name!r} is wrong")
        return self.tensor(name)

    def items(self, start: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """`count` items of the mapping from byte `start` on, as a flat tensor."""
        if not count:
            return torch.empty(0, dtype=dtype)
        # numpy would make three more objects for each of thousands of columns, which slows the garbage collector
        if not self.strict:
            return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=start)
        with warnings.catch_warnings():  # torch has no read-only tensors, and warns about that
            warnings.simplefilter("ignore", UserWarning)
            return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=start)

    def damaged(self, why: str) -> SegmentError:
        """The error for content that contradicts itself."""
        return damaged(self.path, why, self.label)

    def private_bytes(self) -> int | None:
        """Bytes of the pages that this process has written to; `None` on macOS, which does not report them."""
        process = psutil.Process()
        if not hasattr(process, "memory_maps"):
            return None
        start = np.frombuffer(self.memory, np.uint8).ctypes.data
        maps = [(int(area.addr.split("-")[0], 16), area.anonymous) for area in process.memory_maps(grouped=False)]
        return sum(anonymous for low, anonymous in maps if start <= low < start + self.size)

    @property
    def is_saved(self) -> bool:
        """Whether it is a file that the user named, most likely on a disk."""
        return self.path is not None and self.label is None

    def will_need(self, starts: Int64s, ends: Int64s) -> None:
        """Ask the kernel to read these ranges, which begin at pages, in the background."""
        # not posix_fadvise: it releases the interpreter's lock, which a busy thread may keep for 5 ms each time
        for start, end in zip(starts.tolist(), ends.tolist()):
            self.memory.madvise(mmap.MADV_WILLNEED, start, end - start)

    def populate(self) -> None:
        """Map the pages of the columns at once, in a third of the time that page faults would take."""
        end = min([self.size, *(self.tensors[name].start for name in self.checksums)])
        populate(self.memory, POPULATE_READ, 0, end)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The bytes of the file in chunks, each with its first byte, without in-place changes of this process."""
        for start in range(0, self.size, _CHUNK):
            yield start, os.pread(self.fd, _CHUNK, start)


def populate(memory: mmap.mmap, how: int, start: int, nbytes: int) -> None:
    """Map pages by several threads, in pieces, because no signal is handled while the kernel maps one."""

    def work(first: int) -> None:
        # on older kernels and macOS the pages are mapped when they are touched
        with suppress(AttributeError, OSError, ValueError):
            memory.madvise(how, first, min(_POPULATED, start + nbytes - first))

    if nbytes <= _POPULATED:
        work(start)
    else:
        map_in_threads(work, range(start, start + nbytes, _POPULATED), threads(), "pages", progress=False)


def open_saved(path: str) -> Segment:
    """Map a saved segment, which may be larger than memory."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without O_NONBLOCK, opening a pipe would hang
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if getattr(error, "errno", None) in (errno.ENXIO, errno.EOPNOTSUPP):
            raise damaged(path, "it is not a regular file") from error
        why, shown = getattr(error, "strerror", None) or error, cut(path.replace("\0", "\\0"), _LONGEST_PATH)
        raise SegmentError(
            f"A stash is opened from a file that stash.save or ts.load(..., file=) wrote; {shown} cannot be opened: "
            f"{why}. Compare the path."
        ) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise damaged(path, "it is not a regular file")
    return Segment(fd, path)


def attach_name(directory: Directory, name: Name, strict: bool = False) -> Segment | None:
    """The segment of that name; `None` if there is none."""
    fd = open_segment(directory, name)
    return None if fd is None else Segment(fd, directory.join(name), name.label, strict)


def attach_newest(label: str, strict: bool) -> Segment:
    """The newest segment of a label."""
    check_label(label, remedy="ts.shared.list() shows the existing labels.")
    with open_directory() as directory:
        while True:
            names = [name for name, _ in segments_in(directory)]
            labels = sorted({name.label for name in names})
            if label not in labels:
                existing = f"there are {', '.join(map(repr, labels))}" if labels else "there are no shared segments"
                raise SegmentError(
                    f"No segment in {directory.path} has the label {label!r}; {existing}. Share one: "
                    f"ts.load(..., share={label!r})."
                )
            newest = [name for name in names if name.label == label][-1]
            if (segment := attach_name(directory, newest, strict)) is not None:
                return segment


def reattach(path: str, crc: str, strict: bool) -> Segment:
    """The segment at a path, which must be the one with that checksum."""
    segment, name = None, name_of(os.path.basename(path))
    with suppress(FileNotFoundError), open_directory(os.path.dirname(path)) as directory:
        segment = attach_name(directory, name, strict) if name else None
    if segment is None or segment.crc != crc:
        raise SegmentError(
            f"A shared stash is pickled by its name; {path} has been removed since. Share it again, and pickle that."
        )
    return segment


# A destructor or weak reference callback in Python may be interrupted by Ctrl-C, and the exception is only printed: the
# loop that the user wanted to end goes on. In callbacks that are written in C no signal is handled.
_owners: "set[weakref.ref[object]]" = set()  # a reference that is gone itself would not call its callback


def close_with(owner: object, fd: int) -> None:
    """Close a descriptor when its owner is gone, or at exit."""
    _owners.difference_update([reference for reference in _owners.copy() if reference() is None])
    close: Any = io.FileIO(fd).__exit__  # it takes any arguments, here the reference
    _owners.add(weakref.ref(owner, close))


@atexit.register
def _close_all() -> None:
    for reference in _owners.copy():
        if reference.__callback__ is not None:
            reference.__callback__(reference)
    _owners.clear()
