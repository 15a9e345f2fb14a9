"""The file that holds a stash: a strict profile of safetensors, laid out before anything is decoded.

    u64 N | JSON header, padded with spaces | tensor | __pad.0 | tensor | __pad.1 | ... | blobs

Every tensor begins at a multiple of 4,096 bytes, so that columns of one item size stand at equal distances. Blobs,
whose size is known only after decoding, follow the columns; the header is written last, with a CRC of itself.
The format of safetensors: https://github.com/huggingface/safetensors#format.
"""

import contextlib
import json
import math
import mmap
import os
import secrets
import stat
import sys
import tempfile
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.errors import NoMemoryError, SegmentError
from tensorstash.schema import DTYPES

PAGE = 4096
VERSION = "1"
_MAX_HEADER = 100_000_000  # the limit of safetensors
_CODES = {code: dtype for dtype, (code, _) in DTYPES.items()}
_NO_CRC = "0" * 8  # stands in the header's place while its CRC is computed
_CHUNK = 1 << 24
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # MADV_POPULATE_... of Linux 5.14, which mmap does not name
_PIECE = 1 << 28
_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # named in mmap from Python 3.13


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a segment; `begin` is its first byte in the file."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    @property
    def nbytes(self) -> int:
        """Bytes without the padding behind it."""
        return self.dtype.itemsize * math.prod(self.shape)


def pages(nbytes: int) -> int:
    """`nbytes` rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE


# Writing


class Draft:
    """A segment that is being written: its tensors at their places, no header yet."""

    def __init__(
        self,
        tensors: Iterable[tuple[str, torch.dtype, tuple[int, ...]]],
        header_bytes: int,
        fd: int | None = None,
    ) -> None:
        """Lay the tensors out, room for a header of `header_bytes` before them, and allocate every byte.

        They are written to the empty file behind `fd`, which the caller closes; `None` takes an unnamed one of its own.
        """
        self.begin = end = pages(header_bytes)
        self.entries: dict[str, Entry] = {}
        for name, dtype, shape in tensors:
            self.entries[name] = entry = Entry(name, dtype, shape, end)
            end += pages(entry.nbytes)
        self.end = end
        self.fd = _unnamed_file() if fd is None else fd
        if fd is None:
            weakref.finalize(self, os.close, self.fd)
        allocate(self.fd, 0, end)

    def write(self, name: str, row: int, values: NDArray[Any]) -> None:
        """Put the rows `row, row + 1, ...` of a tensor into place."""
        entry = self.entries[name]
        if row < 0 or row + len(values) > entry.shape[0]:
            raise IndexError(f"rows must lie in [0, {entry.shape[0]}); got [{row}, {row + len(values)})")
        row_bytes = entry.nbytes // entry.shape[0] if entry.shape[0] else 0
        write(self.fd, _bytes(values), entry.begin + row * row_bytes)

    def read(self, name: str, row: int, count: int) -> NDArray[Any]:
        """A copy of the rows `row, row + 1, ...` of a flat tensor; bfloat16 as its bits."""
        entry = self.entries[name]
        size = entry.dtype.itemsize
        return np.frombuffer(os.pread(self.fd, count * size, entry.begin + row * size), DTYPES[entry.dtype][1])

    def blob(self, name: str, values: NDArray[Any], dtype: torch.dtype) -> None:
        """Append a whole tensor whose size was not known at the start."""
        self.entries[name] = entry = Entry(name, dtype, values.shape, self.end)
        allocate(self.fd, self.end, pages(entry.nbytes))
        self.end += pages(entry.nbytes)
        write(self.fd, _bytes(values), entry.begin)

    def array(self, name: str) -> NDArray[Any]:
        """A tensor as a writable numpy array over the file itself: bfloat16 as the bits of a uint16."""
        entry = self.entries[name]
        if not entry.nbytes:
            return np.empty(entry.shape, DTYPES[entry.dtype][1])
        memory = mmap.mmap(self.fd, self.end)
        populate(memory, _POPULATE_WRITE, entry.begin, pages(entry.nbytes))
        flat = np.frombuffer(memory, DTYPES[entry.dtype][1], math.prod(entry.shape), entry.begin)
        return flat.reshape(entry.shape)

    def seal(self, metadata: Mapping[str, Any]) -> None:
        """Write the header, with which the file is a whole segment."""
        header = _header(self.entries.values(), self.begin, self.end, metadata)
        if len(header) > self.begin:
            raise SegmentError(f"The header needs {len(header):,} bytes; {self.begin:,} were laid out for it.")
        write(self.fd, memoryview(header.ljust(self.begin)), 0)

    def finish(self, metadata: Mapping[str, Any]) -> "Segment":
        """Seal the file, and map what has been written."""
        self.seal(metadata)
        return mapped(os.dup(self.fd))


def allocate(fd: int, begin: int, nbytes: int) -> None:
    """Take memory for a stretch of a file, so that no later write to it can fail."""
    if not nbytes:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, begin, nbytes)
        else:
            os.ftruncate(fd, begin + nbytes)
    except OSError as error:
        raise NoMemoryError(
            f"A stash is allocated as a whole; {nbytes / 1e6:,.1f} MB could not be: {error}. "
            "Load fewer columns, or a narrower dtype."
        ) from error


def populate(memory: mmap.mmap, how: int, begin: int, nbytes: int) -> None:
    """Map pages; piece by piece, because a signal is not handled before the kernel is done with what it was told."""
    # on older kernels and macOS the pages are mapped when they are touched
    with contextlib.suppress(AttributeError, OSError, ValueError):
        for at in range(begin, begin + nbytes, _PIECE):
            memory.madvise(how, at, min(_PIECE, begin + nbytes - at))


def write(fd: int, data: memoryview, begin: int) -> None:
    """Write all bytes at a place."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], begin + done)


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _unnamed_file() -> int:
    """A file in memory that is gone with its last descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tensorstash", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _header(entries: Iterable[Entry], begin: int, end: int, metadata: Mapping[str, Any]) -> bytes:
    """The first bytes of the file, `8 + N`, without the padding that fills them up to `begin`."""
    tensors: dict[str, Any] = {}
    at = 0
    for k, entry in enumerate(entries):
        code, stop = DTYPES[entry.dtype][0], at + entry.nbytes
        tensors[entry.name] = {"dtype": code, "shape": list(entry.shape), "data_offsets": [at, stop]}
        at += pages(entry.nbytes)
        if at > stop:
            tensors[f"__pad.{k}"] = {"dtype": "U8", "shape": [at - stop], "data_offsets": [stop, at]}
    assert begin + at == end
    own = {"tensorstash.version": VERSION, "tensorstash.crc": _NO_CRC, "tensorstash.schema": json.dumps(metadata)}
    text = json.dumps({"__metadata__": own, **tensors}, separators=(",", ":")).encode()
    size = (begin - 8).to_bytes(8, "little")
    return size + text.replace(_NO_CRC.encode(), f"{zlib.crc32(text):08x}".encode(), 1)


# Reading


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
        populate(self.memory, _POPULATE_READ, 0, self.size)

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


def damaged(path: str | None, why: str, label: str | None = None) -> SegmentError:
    """The error for a file that is no segment."""
    where = path or "the private segment"
    remedy = "Make it again with stash.save(path)." if label is None else f"Remove it: ts.remove({label!r})."
    return SegmentError(f"{where} is not a whole stash: {why}. {remedy}")


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


def parse(fd: int, path: str | None, label: str | None) -> tuple[dict[str, Entry], dict[str, Any], str]:
    """The tensors, the metadata and the checksum of a segment; every number is checked before it is used."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise damaged(path, "it is no regular file", label)
    size = os.fstat(fd).st_size
    begin = 8 + int.from_bytes(os.pread(fd, 8, 0), "little")
    if size < 10 or not 10 <= begin <= min(size, _MAX_HEADER):
        raise damaged(path, f"{size:,} bytes, a header of {begin:,}", label)
    if begin % PAGE:
        raise damaged(path, "its tensors are not aligned; it may be a safetensors file of another library", label)
    text = os.pread(fd, begin - 8, 8).rstrip(b" ")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        own = header.pop("__metadata__")
        crc, version = own["tensorstash.crc"], own["tensorstash.version"]
        metadata = json.loads(own["tensorstash.schema"])
        entries = _entries(header, begin, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, f"its header cannot be read ({type(error).__name__}: {error})", label) from error
    if version != VERSION:
        raise damaged(path, f"it has version {version!r} of the format, this release reads {VERSION!r}", label)
    if f"{zlib.crc32(text.replace(str(crc).encode(), _NO_CRC.encode(), 1)):08x}" != crc:
        raise damaged(path, "the checksum of its header is wrong", label)
    return entries, metadata, crc


def _entries(header: dict[str, Any], begin: int, size: int) -> dict[str, Entry]:
    """The tensors that a header describes, which must fill the file from `begin` on without a hole."""
    entries: dict[str, Entry] = {}
    at = 0
    for name, about in header.items():
        code, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
        if code not in _CODES or not _is_shape(shape):
            raise ValueError(f"tensor {name!r} has type {code!r} and shape {shape!r}")
        entry = Entry(name, _CODES[code], tuple(shape), begin + at)
        if offsets != [at, at + entry.nbytes]:
            raise ValueError(f"tensor {name!r} stands at {offsets!r}, not at {[at, at + entry.nbytes]}")
        at += entry.nbytes
        if not name.startswith("__pad."):
            entries[name] = entry
    if begin + at != size:
        raise ValueError(f"the file has {size:,} bytes, its header describes {begin + at:,}")
    return entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _is_shape(shape: object) -> bool:
    if not isinstance(shape, list) or len(shape) > 8:
        return False
    return all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
