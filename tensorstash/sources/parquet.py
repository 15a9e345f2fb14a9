"""The row groups of a Parquet file: decoded, and what its footer tells of them, asked only where that cannot crash.

When a footer is damaged, asking pyarrow for the metadata or statistics of a column chunk ends the process, because
C++ exceptions are not caught there. Making a reader for the same chunks raises an error instead.
"""

import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.columns.types import is_text, with_value_types
from tensorstash.errors import SourceError
from tensorstash.sources.file import File, here
from tensorstash.sources.filter import Filter
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.read import BATCH_ROWS, Wanted

_FEW_ROWS = 4096  # in a smaller row group, reading texts is faster than looking up their encodings
_MOST_BYTES = 1 << 30  # the most bytes of such texts, if each were as long as the whole row group
_CODE_BYTES, _DICTIONARY_BYTES = 4, 1 << 20  # the most bytes that writers give to a code, and to a dictionary
# encodings of Parquet version 2 that pyarrow cannot read as dictionaries
_NO_DICTIONARIES = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
_FORMAT = pads.ParquetFileFormat()


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


class RowGroups:
    """What the footer of a Parquet file tells of its row groups."""

    def __init__(self, fragment: pads.ParquetFileFragment) -> None:
        self.meta: pq.FileMetaData = fragment.metadata
        self.schema: pa.Schema = fragment.physical_schema
        self.fragment = fragment  # kept because parsing the footer again may take long

    def __reduce__(self) -> "tuple[type[RowGroups], tuple[pads.ParquetFileFragment]]":
        """Without the reader that fails."""
        return RowGroups, (self.fragment,)

    @cached_property
    def _paths(self) -> dict[str, int]:
        """The leaf columns by their paths."""
        leaves = reversed(range(self.meta.num_columns))  # of paths that stand twice, the first counts
        if self.meta.num_columns == len(self.schema):  # one for each; to ask for thousands of paths takes long
            return dict(zip(reversed(self.schema.names), leaves))
        return {_path_of(self.meta, leaf): leaf for leaf in leaves}

    @cached_property
    def _reader(self) -> pq.ParquetFile:
        """A reader that fails at the first byte that it reads, after the readers of its columns have been made."""
        return pq.ParquetFile(pa.PythonFile(_Unread(), "r"), metadata=self.meta, buffer_size=1 << 20, pre_buffer=False)

    def _is_sound(self, group: int, names: Sequence[str]) -> bool:
        """Whether pyarrow can read the metadata and statistics of columns without ending the process."""
        try:
            next(self._reader.iter_batches(1, row_groups=[group], columns=list(names), use_threads=False), None)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            return False
        except _ReadError:
            pass
        chunks, columns = self.meta.row_group(group), self.meta.schema
        return all(
            chunks.column(leaf).physical_type == columns.column(leaf).physical_type for leaf in self._leaves(names)
        )

    def _leaves(self, names: Collection[str]) -> list[int]:
        """The indices of all leaf columns of these columns."""
        named = frozenset(names)  # there may be thousands of paths, most without a dot
        return [
            leaf
            for path, leaf in self._paths.items()
            if path in named or ("." in path and path.partition(".")[0] in named)
        ]

    def _chunk(self, row_group: Any, name: str) -> Any:
        """The metadata of an unnested column in a row group; `None` for any other column."""
        leaf = self._paths.get(name)
        if leaf is None or pa.types.is_nested(self.schema.field(name).type):
            return None
        is_flat = self.meta.schema.column(leaf).max_repetition_level == 0  # lists may be below an extension type
        return row_group.column(leaf) if is_flat else None

    def int96(self, names: Sequence[str]) -> list[str]:
        """Which of these columns have times in INT96, also in lists and structs."""
        indices = {name: self.schema.get_field_index(name) for name in names}
        timed = [name for name, at in indices.items() if at >= 0 and "timestamp[ns]" in str(self.schema.field(at).type)]
        return [
            name
            for name in timed
            if any(self.meta.schema.column(leaf).physical_type == "INT96" for leaf in self._leaves([name]))
        ]

    def with_intervals(self, names: Sequence[str]) -> pa.Schema:
        """The schema in which these columns are intervals of time, if they are: pyarrow reads them as 12 bytes each."""
        schema, stored = self.schema, pa.binary(12)
        for index in [index for name in names if (index := schema.get_field_index(name)) >= 0]:
            field = schema.field(index)
            leaf = self._paths.get(field.name) if field.type == stored else None
            if leaf is not None and self.meta.schema.column(leaf).converted_type == "INTERVAL":
                schema = schema.set(index, field.with_type(pa.month_day_nano_interval()))
        return schema

    def check_counts(self, group: int, names: Sequence[str], place: str) -> None:
        """Raise if a column has another number of values than its row group has rows, which would lose or shift rows.

        To be called after the first batch, when the columns are known to be sound.
        """
        row_group = self.meta.row_group(group)
        for name in names:
            chunk = self._chunk(row_group, name)
            if chunk is not None and chunk.num_values != row_group.num_rows:
                raise SourceError(
                    f"{place} is damaged: it has {chunk.num_values:,} values in column {name!r}, its footer says "
                    f"{row_group.num_rows:,} rows."
                )

    def as_dictionaries(self, group: int, names: Sequence[str]) -> list[str]:
        """The text columns to read as dictionaries: their encodings allow it, and most of their pages hold codes."""
        row_group = self.meta.row_group(group)
        texts = [name for name in names if is_text(self.schema.field(name).type)]
        few = row_group.num_rows <= _FEW_ROWS and row_group.num_rows * row_group.total_byte_size <= _MOST_BYTES
        if not texts or few:
            return []
        if not self._is_sound(group, texts):
            return texts  # reading these columns raises the error
        return [name for name in texts if _has_codes(self._chunk(row_group, name))]

    def rows_at_a_time(self, group: int, names: Sequence[str]) -> int:
        """How many rows to decode at a time: the longer their lists, the fewer."""
        nested = [name for name in names if pa.types.is_nested(self.schema.field(name).type)]
        if not nested or not self._is_sound(group, nested):
            return BATCH_ROWS  # reading them raises the error
        row_group = self.meta.row_group(group)
        values = max((row_group.column(leaf).num_values for leaf in self._leaves(nested)), default=0)
        return BATCH_ROWS if values <= row_group.num_rows else max(1, BATCH_ROWS * row_group.num_rows // values)

    def kept(self, schema: pa.Schema, condition: Filter | None) -> Collection[int]:
        """The row groups whose statistics do not contradict a filter; `schema` has the types of the columns."""
        every = range(self.meta.num_row_groups)
        if condition is None or (asked := condition.for_statistics(schema)) is None:
            return every
        names = [name for name in condition.names(schema) if name in self.schema.names]
        is_alike = all(self.schema.field(name).type == schema.field(name).type for name in names)
        if not names or not is_alike or not all(self._is_sound(group, names) for group in every):
            return every
        with suppress(pa.ArrowException):
            return {group.id for group in self.fragment.subset(asked, schema=with_value_types(schema)).row_groups}
        return every


def parquet_footer(file: File, wanted: Wanted, readers: Readers) -> Footer:
    """The row groups of a Parquet file."""
    groups = RowGroups(_FORMAT.make_fragment(file.path, file.system or here()))
    rows = [groups.meta.row_group(index).num_rows for index in range(groups.meta.num_row_groups)]
    if sum(rows) != groups.meta.num_rows or min(rows, default=0) < 0:
        raise SourceError(
            f"{file} is damaged: its row groups have {sum(rows):,} rows, its footer says {groups.meta.num_rows:,}. "
            "Write the file again."
        )
    schema = groups.with_intervals(wanted.among(groups.schema.names))
    return Footer(file, schema, rows, "row group", partial(_batches, groups), readers, groups)


def _batches(groups: RowGroups, footer: Footer, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, with INT96 of wide columns in microseconds: a reader has one unit for all."""
    rows, wide = groups.rows_at_a_time(group, names), footer.wide
    parts = [("us", [name for name in names if name in wide]), (None, [name for name in names if name not in wide])]
    first, *others = [_read(groups, footer, group, part, rows, unit=unit) for unit, part in parts if part]
    if not others:
        yield from first
        return
    for batches in zip(first, *others, strict=True):
        yield pa.record_batch({n: array for batch in batches for n, array in zip(batch.schema.names, batch.columns)})


def _read(
    groups: RowGroups, footer: Footer, group: int, names: Sequence[str], rows: int, *, unit: str | None
) -> Iterator[pa.RecordBatch]:
    file, texts = footer.file, {*groups.as_dictionaries(group, names)}

    def opened() -> pq.ParquetFile:
        return pq.ParquetFile(
            file.open(),
            metadata=groups.meta,
            # a dictionary and codes are smaller than one string per row
            read_dictionary=[*texts],
            # of a remote file, request all columns at once; a local file would only take more memory
            pre_buffer=file.system is not None,
            buffer_size=1 << 20 if file.system is None else 0,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=unit,
        )

    fits = lambda made: made[:2] == (file, unit) and made[2].intersection(names) == texts  # noqa: E731
    with footer.readers.taken(fits, (file, unit, texts), opened) as reader:
        batches = reader.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)
        for number, batch in enumerate(batches):
            if not number:
                groups.check_counts(group, names, footer.place(group))
            batch.validate(full=True)  # in a damaged file, codes may be out of range and texts invalid UTF-8
            yield batch


def _path_of(meta: pq.FileMetaData, leaf: int) -> str:
    """The dotted path of a leaf column; empty if a name in it is not UTF-8, which a stash need not know."""
    try:
        return str(meta.schema.column(leaf).path)
    except UnicodeDecodeError:
        return ""


def _has_codes(chunk: Any) -> bool:
    """Whether most texts of a column are codes: writers give up a dictionary that grows too large."""
    if chunk is None:
        return True
    size = chunk.total_uncompressed_size - chunk.num_values * _CODE_BYTES
    return size < _DICTIONARY_BYTES and _NO_DICTIONARIES.isdisjoint(chunk.encodings)
