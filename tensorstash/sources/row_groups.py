"""Counts, minima and maxima of columns from the footers of Parquet files, read only where that cannot crash.

When a footer is damaged, asking pyarrow for the metadata or statistics of a column chunk ends the process, because
C++ exceptions are not caught there. Making a reader for the same chunks raises an error instead.
"""

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.errors import SourceError
from tensorstash.sources.filter import Filter
from tensorstash.sources.scan import BATCH_ROWS, Range

_MOST_GROUPS = 4096  # row groups whose statistics are read for a plan, at half a millisecond each
_FEW_ROWS = 4096  # in a smaller row group, reading texts is faster than looking up their encodings
_MOST_BYTES = 1 << 30  # the most bytes of such texts, if each were as long as the whole row group
_CODE_BYTES, _DICTIONARY_BYTES = 4, 1 << 20  # the most bytes that writers give to a code, and to a dictionary
# encodings of Parquet version 2 that pyarrow cannot read as dictionaries
_NO_DICTIONARIES = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})


class _ReadError(Exception):
    """Raised in place of reading a file."""


class _Unread(io.RawIOBase):
    """A file of any size that refuses to be read."""

    _at = 0

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset if whence == io.SEEK_SET else 1 << 60
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        raise _ReadError(size)


def _is_sound(meta: pq.FileMetaData, group: int, names: Sequence[str]) -> bool:
    """Whether pyarrow can read the metadata and statistics of columns of a row group without ending the process."""
    try:
        # with a buffer, readers for all columns are created before the first byte is requested
        file = pq.ParquetFile(pa.PythonFile(_Unread(), "r"), metadata=meta, buffer_size=1 << 20, pre_buffer=False)
        next(file.iter_batches(1, row_groups=[group], columns=list(names), use_threads=False), None)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return False
    except _ReadError:
        pass
    chunks, leaves = meta.row_group(group), _leaves(meta, names)
    return all(chunks.column(leaf).physical_type == meta.schema.column(leaf).physical_type for leaf in leaves)


def _leaves(meta: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    """The indices of all leaf columns of these columns."""
    return [leaf for leaf in range(meta.num_columns) if path_of(meta, leaf).partition(".")[0] in names]


def path_of(meta: pq.FileMetaData, leaf: int) -> str:
    """The dotted path of a leaf column; empty if a name in it is not UTF-8, which a stash need not know."""
    try:
        return str(meta.schema.column(leaf).path)
    except UnicodeDecodeError:
        return ""


def leaf_of(meta: pq.FileMetaData, schema: pa.Schema, name: str) -> int | None:
    """The index of an unnested column among the leaf columns of a Parquet file; `None` for a partition key."""
    index = schema.get_field_index(name)
    if 0 <= index < meta.num_columns and path_of(meta, index) == name:
        return index
    return next((leaf for leaf in range(meta.num_columns) if path_of(meta, leaf) == name), None)


def check_counts(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Iterable[str], place: str) -> None:
    """Raise if a column has another number of values than its row group has rows, which would lose or shift rows.

    To be called after the first batch, when the columns are known to be sound.
    """
    row_group = meta.row_group(group)
    for name in names:
        leaf = None if pa.types.is_nested(schema.field(name).type) else leaf_of(meta, schema, name)
        if leaf is not None and (count := row_group.column(leaf).num_values) != row_group.num_rows:
            raise SourceError(
                f"{place} is damaged: it has {count:,} values in column {name!r}, its footer says "
                f"{row_group.num_rows:,} rows."
            )


def as_dictionaries(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """The text columns to read as dictionaries: their encodings allow it, and most of their pages hold codes."""
    row_group = meta.row_group(group)
    few = row_group.num_rows <= _FEW_ROWS and row_group.num_rows * row_group.total_byte_size <= _MOST_BYTES
    if not names or few:
        return []
    if not _is_sound(meta, group, names):
        return list(names)  # reading these columns raises the error
    chosen = []
    for name in names:
        leaf = leaf_of(meta, schema, name)
        chunk = None if leaf is None else row_group.column(leaf)
        # writers give up a dictionary that grows too large: then most of the chunk is texts
        size = 0 if chunk is None else chunk.total_uncompressed_size - chunk.num_values * _CODE_BYTES
        if chunk is None or (size < _DICTIONARY_BYTES and _NO_DICTIONARIES.isdisjoint(chunk.encodings)):
            chosen.append(name)
    return chosen


def rows_at_a_time(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Iterable[str]) -> int:
    """How many rows to decode at a time: the longer their lists, the fewer."""
    nested = [name for name in names if pa.types.is_nested(schema.field(name).type)]
    if not nested or not _is_sound(meta, group, nested):
        return BATCH_ROWS  # reading them raises the error
    row_group = meta.row_group(group)
    values = max((row_group.column(leaf).num_values for leaf in _leaves(meta, nested)), default=0)
    return BATCH_ROWS if values <= row_group.num_rows else max(1, BATCH_ROWS * row_group.num_rows // values)


def kept_groups(fragment: pads.ParquetFileFragment, schema: pa.Schema, condition: Filter | None) -> Collection[int]:
    """The row groups whose statistics do not contradict a filter; `schema` has the types of the columns."""
    meta, stored = fragment.metadata, fragment.physical_schema
    every = range(meta.num_row_groups)
    asked = None if condition is None else condition.for_statistics(schema)
    if condition is None or asked is None:
        return every
    names = [name for name in condition.names(schema) if name in stored.names]
    if not names or any(stored.field(name).type != schema.field(name).type for name in names):
        return every
    if not all(_is_sound(meta, group, names) for group in every):
        return every
    with suppress(pa.ArrowException):
        return {group.id for group in fragment.subset(asked, schema=schema).row_groups}
    return every


def range_of(files: Sequence[tuple[pq.FileMetaData, pa.Schema] | None], name: str) -> Range:
    """Nulls, minimum and maximum of a column over files that all have them; `None` stands for a file without."""
    known = [file for file in files if file is not None]
    if len(known) < len(files) or sum(meta.num_row_groups for meta, _ in known) > _MOST_GROUPS:
        return Range()
    ranges = [chunk for meta, schema in known for chunk in _chunk_ranges(meta, schema, name)]
    nulls = None if any(chunk.nulls is None for chunk, _ in ranges) else sum(chunk.nulls or 0 for chunk, _ in ranges)
    bounded = [chunk for chunk, has_values in ranges if has_values]
    if not bounded or any(chunk.low is None for chunk in bounded):
        return Range(nulls)
    with suppress(TypeError):  # times with a zone and without
        return Range(nulls, min(chunk.low for chunk in bounded), max(chunk.high for chunk in bounded))
    return Range(nulls)


def _chunk_ranges(meta: pq.FileMetaData, schema: pa.Schema, name: str) -> Iterator[tuple[Range, bool]]:
    """The range of each row group, and whether it may hold values that are not null."""
    leaf = leaf_of(meta, schema, name) if name in schema.names else None
    for group in range(meta.num_row_groups):
        if leaf is None or not _is_sound(meta, group, [name]):
            yield Range(), True
            continue
        chunk = meta.row_group(group).column(leaf)
        statistics = chunk.statistics
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
        bounds = None, None
        if statistics is not None and statistics.has_min_max:
            with suppress(ValueError, OverflowError, pa.ArrowException):  # invalid UTF-8, years out of range
                bounds = _bounds(statistics.min, statistics.max, schema.field(name).type)
        yield Range(nulls, *bounds), nulls != chunk.num_values


def _bounds(low: Any, high: Any, arrow: pa.DataType) -> tuple[Any, Any]:
    """Minimum and maximum as values of the column; `None` if a writer has let NaN into them."""
    if pa.types.is_float16(arrow) and isinstance(low, bytes):  # pyarrow hands out the bytes that Parquet stores
        low, high = (np.frombuffer(value, "<f2").item() for value in (low, high))
    return (None, None) if low != low or high != high else (low, high)  # noqa: PLR0124  only NaN differs from itself
