"""The metadata of a segment, checked against its tensors before anything is made of it."""

from tensorstash.columns.info import StashInfo, from_header
from tensorstash.segments.format import damaged
from tensorstash.segments.mapping import Segment


def info_of(segment: Segment) -> StashInfo:
    """What the header says of a stash; `SegmentError` where it contradicts itself."""
    try:
        info = from_header(segment.metadata)
        _check_tensors(segment, info)
    except ValueError as error:
        why = f"its header cannot be read ({type(error).__name__}: {error})"
        raise damaged(segment.path, why, segment.label) from error
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
