"""Parquet and Arrow IPC files as a scan: all footers first, compared; then readers of row groups and batches."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow import fs

from tensorstash.columns.types import is_text
from tensorstash.common.threads import each, threads
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.filter import Filter
from tensorstash.sources.footers import check_counts, kept_groups, range_of
from tensorstash.sources.locate import ARROW, REQUESTS, File
from tensorstash.sources.scan import Scan, Unit, Wanted
from tensorstash.sources.unify import unify

BATCH_ROWS = 262_144  # rows decoded at a time: large enough for vectorized casts, small enough for the cache
_MAGIC = b"ARROW1"  # of an Arrow file; a stream has none
_FORMAT = pads.ParquetFileFormat()
_HERE = fs.LocalFileSystem()


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself."""

    file: File
    schema: pa.Schema  # with the keys of its path as columns behind its own
    own: frozenset[str]  # the columns that it holds itself
    rows: tuple[int, ...]  # of each row group, record batch, or of a whole stream
    piece: str  # what these are called
    fragment: pads.ParquetFileFragment | None  # of a Parquet file: it has been parsed, which may take long


def scan_files(
    files: Sequence[File], label: str, wanted: Wanted, condition: Filter | None, progress: bool | None
) -> Scan:
    """Read all footers, several at a time, and compare them; what paths and statistics exclude is left out."""
    types = _key_types(files)
    look = partial(_footer, types=types, wanted=wanted)
    if condition is not None and types:
        files = _kept_files(files, look(files[0]), types, condition) or files[:1]
    at_a_time = threads() if all(file.system is None for file in files) else REQUESTS
    footers = each(look, files, at_a_time, "footers", progress)
    names = [str(footer.file) for footer in footers]
    schema, notes = unify(names, [footer.schema for footer in footers], wanted)
    units, start, first = [], 0, 0
    for footer in footers:
        kept: Collection[int] = range(len(footer.rows))
        if condition is not None and footer.fragment is not None:
            kept = kept_groups(footer.fragment, footer.schema, condition, schema)
        for index, rows in enumerate(footer.rows):
            if index in kept:
                read = partial(_read, footer, index, schema)
                units.append(Unit(_place(footer, index), start, rows, read, first))
                start += rows
            first += rows
    pieces = sum(len(footer.rows) for footer in footers)
    metas = [footer.fragment and (footer.fragment.metadata, footer.fragment.physical_schema) for footer in footers]
    return Scan(label, schema, tuple(units), pieces, notes, partial(range_of, metas))


def _place(footer: Footer, index: int) -> str:
    return f"{footer.file}, {footer.piece} {index}" if footer.piece != "stream" else str(footer.file)


# Footers


def _footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    try:
        if file.path.lower().endswith(ARROW):
            return _arrow_footer(file, types, wanted)
        return _parquet_footer(file, types)
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{file} is not a readable Parquet or Arrow IPC file: {error}") from error


def _parquet_footer(file: File, types: Mapping[str, pa.DataType]) -> Footer:
    fragment = _FORMAT.make_fragment(file.path, file.system or _HERE)
    meta, own = fragment.metadata, fragment.physical_schema
    rows = tuple(meta.row_group(index).num_rows for index in range(meta.num_row_groups))
    if sum(rows) != meta.num_rows or min(rows, default=0) < 0:
        raise SourceError(
            f"{file} is damaged: its row groups have {sum(rows):,} rows, and the whole file has {meta.num_rows:,}."
        )
    return Footer(file, _with_keys(own, file, types), frozenset(own.names), rows, "row group", fragment)


def _arrow_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """A batch tells its rows only when it is read: of one column, over a map of the file where there can be one."""
    with pa.memory_map(file.path) if file.system is None else file.open() as opened:
        whole = opened.read(len(_MAGIC)) == _MAGIC
        opened.seek(0)
        own = (pa.ipc.open_file(opened) if whole else pa.ipc.open_stream(opened)).schema
        opened.seek(0)
        field = own.names.index((wanted.among(own.names) or own.names)[0])
        options = pa.ipc.IpcReadOptions(included_fields=[field], use_threads=False)
        if whole:
            reader = pa.ipc.open_file(opened, options=options)
            rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
        else:
            rows = [sum(batch.num_rows for batch in pa.ipc.open_stream(opened, options=options))]
    piece = "record batch" if whole else "stream"
    return Footer(file, _with_keys(own, file, types), frozenset(own.names), tuple(rows), piece, None)


# Keys of paths


def _key_types(files: Sequence[File]) -> dict[str, pa.DataType]:
    """The types of the keys: integers where all values are, else text."""
    values: dict[str, set[str | None]] = {}
    for keys in {file.keys for file in files}:
        for key, value in keys:
            values.setdefault(key, set()).add(value)
    text = pa.dictionary(pa.int32(), pa.string())
    return {key: pa.int64() if all(map(_is_integer, found)) else text for key, found in values.items()}


def _is_integer(value: str | None) -> bool:
    return value is None or (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 19)


def _with_keys(own: pa.Schema, file: File, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Keys behind the columns; a column that a file holds itself is that column, whatever its path says."""
    for key in dict(file.keys):
        if key not in own.names:
            own = own.append(pa.field(key, types[key]))
    return own


def _constant(value: str | None, arrow: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, arrow)
    if pa.types.is_dictionary(arrow):
        return pa.repeat(pa.scalar(value), rows).dictionary_encode()
    return pa.repeat(pa.scalar(int(value), arrow), rows)


# What a filter excludes unread


def _kept_files(
    files: Sequence[File], first: Footer, types: Mapping[str, pa.DataType], condition: Filter
) -> Sequence[File]:
    """Those whose keys do not contradict the filter."""
    keys = {key: arrow for key, arrow in types.items() if key not in first.own}
    said = [_said(file, keys) for file in files]
    fragments = [_FORMAT.make_fragment(str(k), _HERE, partition_expression=about) for k, about in enumerate(said)]
    dataset = pads.FileSystemDataset(fragments, first.schema, _FORMAT, _HERE)
    with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, with its names
        return [files[int(fragment.path)] for fragment in dataset.get_fragments(condition.expression)]
    return files


def _said(file: File, keys: Mapping[str, pa.DataType]) -> pc.Expression:
    """What the keys of a path say of the rows of the file."""
    about = pc.scalar(True)
    for key, value in file.keys:
        if key in keys:
            plain = value if value is None or pa.types.is_dictionary(keys[key]) else int(value)
            about &= pc.field(key).is_null() if plain is None else pc.field(key) == plain
    return about


# Readers


def _read(footer: Footer, index: int, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, a record batch or a stream, in the types of the schema of all files."""
    own = [name for name in names if name in footer.own]
    keys = dict(footer.file.keys)
    for rows, columns in _own(footer, index, own):
        arrays = [
            _as(columns[name], schema.field(name), _place(footer, index))
            if name in columns
            else _constant(keys[name], schema.field(name).type, rows)
            for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _own(footer: Footer, index: int, names: Collection[str]) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """The rows of each batch, and the columns that the file itself holds; without any, no file is opened."""
    if not names:
        rows = footer.rows[index]
        for begin in range(0, rows, BATCH_ROWS):
            yield min(BATCH_ROWS, rows - begin), {}
        return
    batches = _parquet(footer, index, names) if footer.fragment else _arrow(footer, index, names)
    for batch in batches:
        yield batch.num_rows, dict(zip(batch.schema.names, batch.columns))


def _as(array: pa.Array, field: pa.Field, place: str) -> pa.Array:
    if array.type == field.type or is_text(field.type):
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        if not pa.types.is_timestamp(field.type):
            raise
        raise DataError(
            f"Files of different units are read in the finest; column {field.name!r} is {array.type} in {place}, and "
            f"does not fit into {field.type}: {error}. Write all files with one unit."
        ) from error


def _parquet(footer: Footer, group: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    assert footer.fragment is not None
    texts = [name for name in names if is_text(footer.schema.field(name).type)]
    remote = footer.file.system is not None
    source = footer.file.open()
    with (
        closing(source) if remote else nullcontext(),
        pq.ParquetFile(
            source,
            metadata=footer.fragment.metadata,
            # one dictionary instead of a string object per row
            read_dictionary=texts,
            # of a local file it would hold more than is needed; elsewhere it asks for all columns of the group at once
            pre_buffer=remote,
            buffer_size=0 if remote else 1 << 20,
            page_checksum_verification=True,
        ) as file,
    ):
        batches = file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False)
        for number, batch in enumerate(batches):
            if not number:
                meta, place = footer.fragment.metadata, _place(footer, group)
                check_counts(meta, group, footer.schema, names, place)
            for name in texts:  # codes of a damaged file may point anywhere, and its texts be no UTF-8
                batch.column(name).validate(full=True)
            yield batch


def _arrow(footer: Footer, index: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    fields = sorted(footer.schema.get_field_index(name) for name in names)
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.OSFile(footer.file.path) if footer.file.system is None else footer.file.open() as opened:
        if footer.piece == "stream":
            batches: Iterable[pa.RecordBatch] = pa.ipc.open_stream(opened, options=options)
        else:
            batches = [pa.ipc.open_file(opened, options=options).get_batch(index)]
        for batch in batches:
            batch.validate(full=True)  # nothing else has looked at the offsets and codes of such a file
            yield batch
