"""The file that holds a stash: a strict profile of safetensors, laid out before anything is decoded.

    u64 N | JSON header, padded with spaces | tensor | __pad.0 | tensor | __pad.1 | ... | blobs

Every tensor begins at a multiple of 4,096 bytes, so that columns of one item size are equally far apart. Blobs
(offsets, static columns, texts), whose size is known only after decoding, follow the columns; in a stash without rows
they begin at multiples of 64. The header is written last. It holds a CRC of itself and of each blob; columns, which may
be larger than memory, have none.
The format of safetensors: https://github.com/huggingface/safetensors#format.
"""

import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorstash.errors import SegmentError

if TYPE_CHECKING:
    import torch

PAGE = 4096
VERSION = "1"
MAX_HEADER = 100_000_000  # the limit of safetensors
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "I8", "U8"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}
_NO_CRC = "0" * 8  # stands in the header's place while its CRC is computed


@dataclass(frozen=True, slots=True)
class Header:
    """The parsed header of a segment."""

    tensors: dict[str, "TensorInfo"]
    metadata: Any  # JSON, checked by the stash
    crc: str  # checksum of the header itself
    checksums: dict[str, int]  # CRC-32 of the blobs
    key: str | None  # names the load that made the file


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a segment; `start` is its first byte in the file."""

    name: str
    code: str  # the name of its dtype in safetensors
    shape: tuple[int, ...]
    start: int

    @property
    def dtype(self) -> "torch.dtype":
        """Its type in torch."""
        from tensorstash.common.dtypes import CODES  # here, because segments are listed without torch

        return CODES[self.code]

    @property
    def nbytes(self) -> int:
        """Bytes, without the padding that follows."""
        return _ITEM_BYTES[self.code] * math.prod(self.shape)


def pages(nbytes: int, size: int = PAGE) -> int:
    """`nbytes` rounded up to whole pages."""
    return -(-nbytes // size) * size


def header_bytes(
    tensors: Iterable[TensorInfo],
    start: int,
    size: int,
    metadata: Mapping[str, Any],
    checksums: Mapping[str, int],
    *,
    key: str | None,
) -> bytes:
    """The first bytes of the file, `8 + N`, without the padding that fills them up to `start`, the first tensor."""
    described: dict[str, Any] = {}
    every = [*tensors]
    ends = [*(info.start for info in every[1:]), size]
    for k, (info, end) in enumerate(zip(every, ends)):
        offset, after = info.start - start, end - start
        stop = offset + info.nbytes
        described[info.name] = {"dtype": info.code, "shape": list(info.shape), "data_offsets": [offset, stop]}
        if after > stop:
            described[f"__pad.{k}"] = {"dtype": "U8", "shape": [after - stop], "data_offsets": [stop, after]}
    fields = {
        "tensorstash.version": VERSION,
        "tensorstash.crc": _NO_CRC,
        "tensorstash.schema": json.dumps(metadata),
        "tensorstash.blobs": json.dumps(checksums),
        **({} if key is None else {"tensorstash.key": key}),
    }
    text = json.dumps({"__metadata__": fields, **described}, separators=(",", ":")).encode()
    length = (start - 8).to_bytes(8, "little")
    return length + text.replace(_NO_CRC.encode(), f"{zlib.crc32(text):08x}".encode(), 1)


def damaged(path: str | None, why: str, label: str | None = None) -> SegmentError:
    """The error for a file that is not a whole segment."""
    where = path or "the private segment"
    remedy = "Make it again with stash.save(path)." if label is None else f"Remove it: ts.shared.remove({label!r})."
    return SegmentError(f"{where} is not a whole stash: {why}. {remedy}")


def parse(fd: int, path: str | None, label: str | None) -> Header:
    """The header of a segment; every number in it is checked before it is used."""
    size, length = os.fstat(fd).st_size, os.pread(fd, 8, 0)
    if length.startswith(b"PAR1"):
        raise SegmentError(f"{path} is a Parquet file, not a stash. Load it: ts.load({path!r}, ...).")
    start = 8 + int.from_bytes(length, "little")
    if start > MAX_HEADER:
        raise damaged(path, "it is of another format", label)
    if size < 10 or not 10 <= start <= size:
        raise damaged(path, f"{size:,} bytes, a header of {start:,}", label)
    if start % PAGE:
        raise damaged(path, "its tensors are not aligned; it may be a safetensors file of another library", label)
    text = os.pread(fd, start - 8, 8).rstrip(b" ")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
        fields = header.pop("__metadata__")
        crc, version = fields["tensorstash.crc"], fields["tensorstash.version"]
        metadata = json.loads(fields["tensorstash.schema"])
        checksums = dict(json.loads(fields["tensorstash.blobs"]))
        key = fields.get("tensorstash.key")
        if rb"\ud" in text.lower():  # half a pair of surrogates is valid JSON, but not text
            json.dumps([header, metadata], ensure_ascii=False).encode()
        tensors = _tensors(header, start, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, f"its header cannot be read ({type(error).__name__}: {error})", label) from error
    if version != VERSION:
        raise damaged(path, f"it has version {version!r} of the format, this release reads {VERSION!r}", label)
    if f"{zlib.crc32(text.replace(str(crc).encode(), _NO_CRC.encode(), 1)):08x}" != crc:
        raise damaged(path, "the checksum of its header is wrong", label)
    return Header(tensors, metadata, crc, checksums, key)


def _tensors(header: dict[str, Any], start: int, size: int) -> dict[str, TensorInfo]:
    """The tensors of a header; they must fill the file from `start` to its end without a hole."""
    tensors: dict[str, TensorInfo] = {}
    offset = 0
    for name, fields in header.items():
        code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
        if code not in _ITEM_BYTES or not _is_shape(shape):
            raise ValueError(f"tensor {name!r} has type {code!r} and shape {shape!r}")
        info = TensorInfo(name, code, tuple(shape), start + offset)
        if offsets != [offset, offset + info.nbytes]:
            raise ValueError(f"tensor {name!r} stands at {offsets!r}, not at {[offset, offset + info.nbytes]}")
        offset += info.nbytes
        if not name.startswith("__pad."):
            tensors[name] = info
    if start + offset != size:
        raise ValueError(f"the file has {size:,} bytes, its header describes {start + offset:,}")
    return tensors


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _is_shape(shape: object) -> bool:
    if not isinstance(shape, list) or len(shape) > 8:
        return False
    return all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
