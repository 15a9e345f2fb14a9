"""Counts, minima and maxima of columns from the footers of Parquet files, read only where that cannot crash.

pyarrow ends the process where it is asked for the metadata or statistics of a column chunk that a damaged footer
describes (its exceptions of C++ are not caught there); a reader that is made for the same chunks fails with an error.
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

_FEW_ROWS = 4096  # of a row group whose texts are read in less time than it takes to look at their encodings

_MOST_BYTES = 1 << 30  # of the texts of so few rows, if each were as long as the row group

_CODE_BYTES, _DICTIONARY_BYTES = 4, 1 << 20  # at most, of a row and of a dictionary, as writers limit it

# encodings of Parquet version 2 that pyarrow cannot read as dictionaries
_NO_DICTIONARIES = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})


class _Unread(io.RawIOBase):
    """A file of any size that refuses to be read and records the attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.touched = False
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset if whence == io.SEEK_SET else 1 << 60
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        self.touched = True
        raise OSError(f"{size} bytes of a file that is not to be read")


def is_sound(meta: pq.FileMetaData, group: int, names: Sequence[str]) -> bool:
    """Whether pyarrow can read the metadata and statistics of columns of a row group without ending the process."""
    unread = _Unread()
    try:
        # with a buffer, readers for all columns are created before the first byte is requested
        file = pq.ParquetFile(pa.PythonFile(unread, "r"), metadata=meta, buffer_size=1 << 20, pre_buffer=False)
        next(file.iter_batches(1, row_groups=[group], columns=list(names), use_threads=False), None)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        if not unread.touched:
            return False
    columns = range(meta.num_columns)
    leaves = [leaf for leaf in columns if meta.schema.column(leaf).path.partition(".")[0] in names]
    row_group = meta.row_group(group)
    return all(row_group.column(leaf).physical_type == meta.schema.column(leaf).physical_type for leaf in leaves)


def leaf_of(meta: pq.FileMetaData, field: int, name: str) -> int | None:
    """The index of a column without nested fields among the leaf columns of a Parquet file.

    `field` is its index in the Arrow schema, or -1 for a partition key.
    """
    if 0 <= field < meta.num_columns and meta.schema.column(field).path == name:
        return field
    return next((leaf for leaf in range(meta.num_columns) if meta.schema.column(leaf).path == name), None)


def check_counts(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Iterable[str], place: str) -> None:
    """Refuse a column whose number of values differs from the rows of its row group: rows would be lost or shifted.

    Call it after the first batch: then the columns are known to be sound.
    """
    row_group = meta.row_group(group)
    for name in names:
        field = schema.get_field_index(name)
        leaf = None if pa.types.is_nested(schema.field(field).type) else leaf_of(meta, field, name)
        if leaf is not None and (count := row_group.column(leaf).num_values) != row_group.num_rows:
            raise SourceError(
                f"{place} has {count:,} values in column {name!r}, its footer says {row_group.num_rows:,} rows: it is "
                "damaged."
            )


def as_dictionaries(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """The text columns that are better read as dictionaries, and whose encodings allow it."""
    row_group = meta.row_group(group)
    few = row_group.num_rows <= _FEW_ROWS and row_group.num_rows * row_group.total_byte_size <= _MOST_BYTES
    if not names or few:
        return []
    if not is_sound(meta, group, names):
        return list(names)  # reading them raises the error
    leaves = ((name, leaf_of(meta, schema.get_field_index(name), name)) for name in names)
    return [name for name, leaf in leaves if leaf is None or _is_dictionary(row_group.column(leaf))]


def _is_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a column chunk can be read as codes, and mostly is codes: writers give up a dictionary that grows."""
    written_as_codes = chunk.total_uncompressed_size < chunk.num_values * _CODE_BYTES + _DICTIONARY_BYTES
    return written_as_codes and _NO_DICTIONARIES.isdisjoint(chunk.encodings)


def rows_at_a_time(meta: pq.FileMetaData, group: int, schema: pa.Schema, names: Iterable[str]) -> int:
    """How many rows of columns are decoded at a time: fewer, the longer their lists are."""
    nested = [name for name in names if pa.types.is_nested(schema.field(name).type)]
    if not nested or not is_sound(meta, group, nested):
        return BATCH_ROWS  # reading them raises the error
    row_group = meta.row_group(group)
    leaves = [leaf for leaf in range(meta.num_columns) if meta.schema.column(leaf).path.partition(".")[0] in nested]
    values = max((row_group.column(leaf).num_values for leaf in leaves), default=0)
    return BATCH_ROWS if values <= row_group.num_rows else max(1, BATCH_ROWS * row_group.num_rows // values)


def kept_groups(fragment: pads.ParquetFileFragment, schema: pa.Schema, condition: Filter | None) -> Collection[int]:
    """The row groups of a file whose statistics do not contradict a filter of columns with the types of `schema`."""
    meta, stored = fragment.metadata, fragment.physical_schema
    every = range(meta.num_row_groups)
    asked = None if condition is None else condition.for_statistics(schema)
    if condition is None or asked is None:
        return every
    names = [name for name in condition.names(schema) if name in stored.names]
    if not names or any(stored.field(name).type != schema.field(name).type for name in names):
        return every
    if not all(is_sound(meta, group, names) for group in every):
        return every
    with suppress(pa.ArrowException):
        return {group.id for group in fragment.subset(asked, schema=schema).row_groups}
    return every


def range_of(files: Sequence[tuple[pq.FileMetaData, pa.Schema] | None], name: str) -> Range:
    """Nulls, minimum and maximum of a column over several files, where all have them; `None` is a file without any."""
    known = [file for file in files if file is not None]
    if len(known) < len(files) or sum(meta.num_row_groups for meta, _ in known) > _MOST_GROUPS:
        return Range()
    chunks = [chunk for meta, schema in known for chunk in _chunk_ranges(meta, schema, name)]
    nulls = [chunk.nulls for chunk, _ in chunks]
    bounded = [chunk for chunk, is_empty in chunks if not is_empty]
    lows, highs = [chunk.low for chunk in bounded], [chunk.high for chunk in bounded]
    whole = sum(count for count in nulls if count is not None) if None not in nulls else None
    if None in lows or not lows:
        return Range(whole)
    try:
        return Range(whole, min(lows), max(highs))
    except TypeError:  # times with a zone and without
        return Range(whole)


def _chunk_ranges(meta: pq.FileMetaData, schema: pa.Schema, name: str) -> Iterator[tuple[Range, bool]]:
    """The range of each row group, and whether it holds only nulls."""
    leaf = leaf_of(meta, schema.get_field_index(name), name) if name in schema.names else None
    for group in range(meta.num_row_groups):
        if leaf is None or not is_sound(meta, group, [name]):
            yield Range(), False
            continue
        chunk = meta.row_group(group).column(leaf)
        statistics = chunk.statistics
        nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
        bounds = Range(nulls)
        if statistics is not None and statistics.has_min_max:
            with suppress(ValueError, OverflowError, pa.ArrowException):  # invalid UTF-8, years out of range
                bounds = Range(nulls, *_bounds(statistics.min, statistics.max, schema.field(name).type))
        yield bounds, nulls == chunk.num_values


def _bounds(low: Any, high: Any, arrow: pa.DataType) -> tuple[Any, Any]:
    """Minimum and maximum as values of the column; none where a writer has let NaN into them."""
    if pa.types.is_float16(arrow) and isinstance(low, bytes):  # pyarrow hands out the bytes that Parquet stores
        low, high = (np.frombuffer(value, "<f2").item() for value in (low, high))
    return (None, None) if low != low or high != high else (low, high)  # noqa: PLR0124  only NaN differs from itself
