"""The header of a stash, its offsets, entity names and vocabularies, each checked before it is used."""

import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from tensorstash.columns.column import fits
from tensorstash.columns.info import StashInfo, from_header
from tensorstash.columns.name_list import Part, Texts
from tensorstash.common.dtypes import Int64s
from tensorstash.segments.segment import Segment

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash

CALENDAR = "__calendar"  # the times that exist, if a load was given them as `frequency=`
MONTH_DAYS = "__month_days"  # of a stash that takes over entities: `month_days` of rows that it does not have


def info_of(segment: Segment) -> StashInfo:
    """The checked description of a stash in its header; a header that contradicts itself is a `SegmentError`."""
    try:
        info = from_header(segment.metadata, segment.tensors)
        _check_tensors(segment, info)
        _check_fills(segment, info)
    except ValueError as error:
        raise segment.damaged(f"its header cannot be read ({type(error).__name__}: {error})") from None
    return info


def _check_tensors(segment: Segment, info: StashInfo) -> None:
    """Raise `ValueError` unless the tensors have the rows and types that the header says."""
    tensors, columns = segment.tensors, (*info.columns, *info.static)
    names = [column.name for column in columns]
    if len({*names}) < len(names):
        raise ValueError("a column is named twice")
    times = [name for name, times in (("__time", info.time), ("__known", info.known)) if times is not None]
    flat = dict.fromkeys(("__offsets", *times), torch.int64)  # the types of tensors of one dimension
    for name in flat:
        if name not in tensors:
            raise ValueError(f"column {name!r} has no tensor")
    flat |= {
        column.name: torch.int32 if column.is_coded else torch.int64 for column in columns if column.kind != "number"
    }
    flat |= {name: kind for name, kind in ((MONTH_DAYS, torch.int8), (CALENDAR, torch.int64)) if name in tensors}
    offsets = tensors["__offsets"].shape
    entities = offsets[0] - 1 if len(offsets) == 1 else -1
    rows = dict.fromkeys((*names[: len(info.columns)], *times), info.rows)
    rows |= dict.fromkeys((*names[len(info.columns) :], *({MONTH_DAYS} & flat.keys())), entities)
    for name, count in rows.items():
        if tensors[name].shape[:1] != (count,):
            raise ValueError(f"column {name!r} has the shape {tensors[name].shape}, not {count} rows")
    for name, dtype in flat.items():
        if tensors[name].dtype != dtype or len(tensors[name].shape) != 1:
            raise ValueError(f"column {name!r} has type {tensors[name].dtype} and the shape {tensors[name].shape}")
    for column in columns:
        shape, members = tensors[column.name].shape, len(column.members)
        if members > 1 and shape[1:] != (members,):
            raise ValueError(f"column {column.name!r} has the shape {shape}, but {members} members")


def _check_fills(segment: Segment, info: StashInfo) -> None:
    """Raise `ValueError` if a fill does not fit its column; `Stash.vocabulary` checks the fills of codes."""
    numbers = [column for column in (*info.columns, *info.static) if not column.is_coded]
    for name, fill in [(column.name, fill) for column in numbers for fill in (column.fill, column.empty)]:
        if fill is not None and not fits(fill, segment.tensors[name].dtype):
            raise ValueError(f"column {name!r} is filled with {fill!r}")


def checked_offsets(segment: Segment, rows: int) -> torch.Tensor:
    """The first row of each entity and, last, the number of rows: `(entities + 1,)` int64."""
    offsets = segment.blob("__offsets")
    values = offsets.numpy()  # each operation of torch takes several times as long
    if values[0] != 0 or values[-1] != rows or (values[1:] < values[:-1]).any():
        raise segment.damaged(f"the offsets of its entities do not ascend from 0 to {rows:,}")
    return offsets


def read_names(segment: Segment, name: str) -> Part:
    """A column of the entity names, or a vocabulary, in a segment."""
    if f"{name}.integers" in segment.tensors:
        return segment.blob(f"{name}.integers").numpy()
    letters = segment.blob(f"{name}.text").numpy().view(np.uint8).reshape(-1)
    bounds = np.append(0, segment.blob(f"{name}.ends").numpy())
    if bounds.dtype != np.int64 or (bounds[1:] < bounds[:-1]).any() or bounds[-1] != len(letters):
        raise segment.damaged(f"the texts of {name!r} do not fill their bytes")
    return Texts(letters, bounds, lambda why: segment.damaged(f"the texts of {name!r} {why}"))


def times_checksum(times: Int64s) -> int:
    """A checksum of all times, in the order of their rows."""
    return zlib.crc32(times.data)


def names_checksum(stash: "Stash", column: str | None = None) -> int:
    """A checksum of the entity names, or of the vocabulary of a column, in their order; nothing is decoded."""
    prefix = "__entities." if column is None else f"{column}.__vocabulary."
    blobs = stash.segment.checksums
    return zlib.crc32(repr([(name, blobs[name]) for name in sorted(blobs) if name.startswith(prefix)]).encode())
