"""The header of a stash: its metadata is checked against the tensors before they are used, and so are the offsets."""

import torch

from tensorstash.columns.info import StashInfo, from_header
from tensorstash.segments.segment import Segment


def info_of(segment: Segment) -> StashInfo:
    """What the header says of a stash; `SegmentError` where it contradicts itself."""
    try:
        info = from_header(segment.metadata)
        _check_tensors(segment, info)
        _check_types(segment, info)
    except ValueError as error:
        why = f"its header cannot be read ({type(error).__name__}: {error})"
        raise segment.damaged(why) from error
    return info


def _check_tensors(segment: Segment, info: StashInfo) -> None:
    """Raise `ValueError` where a tensor is missing that the metadata names, or has another number of rows."""
    names = [column.name for column in (*info.columns, *info.static)]
    if len({*names}) < len(names):
        raise ValueError("a column is named twice")
    for name in [*names, "__offsets", *(["__time"] if info.time else [])]:
        if name not in segment.entries:
            raise ValueError(f"column {name!r} has no tensor")
    rows = {column.name: info.rows for column in info.columns} | ({"__time": info.rows} if info.time else {})
    offsets = segment.entries["__offsets"].shape
    entities = offsets[0] - 1 if len(offsets) == 1 else -1
    for name, count in (rows | {column.name: entities for column in info.static}).items():
        shape = segment.entries[name].shape
        if shape[:1] != (count,):
            raise ValueError(f"column {name!r} has the shape {shape}, not {count} rows")


def _check_types(segment: Segment, info: StashInfo) -> None:
    """Raise `ValueError` where the tensor of a key, of codes or of times, or a pack, has another type or shape."""
    keys = ["__offsets", "__time"] if info.time else ["__offsets"]
    integers = dict.fromkeys(keys, torch.int64)
    for column in (*info.columns, *info.static):
        shape, members = segment.entries[column.name].shape, len(column.members)
        if members > 1 and shape[1:] != (members,):
            raise ValueError(f"column {column.name!r} has the shape {shape}, but {members} members")
        if column.kind != "number":
            integers[column.name] = torch.int32 if column.is_coded else torch.int64
    for name, dtype in integers.items():
        entry = segment.entries[name]
        if entry.dtype != dtype or len(entry.shape) != 1:
            raise ValueError(f"column {name!r} has type {entry.dtype} and the shape {entry.shape}")


def checked_offsets(segment: Segment, rows: int) -> torch.Tensor:
    """The first row of each entity and, last, the number of rows: `(entities + 1,)` int64."""
    offsets = segment.blob("__offsets")
    if offsets[0] != 0 or offsets[-1] != rows or (offsets[1:] < offsets[:-1]).any():
        raise segment.damaged(f"the offsets of its entities do not ascend from 0 to {rows:,}")
    return offsets
