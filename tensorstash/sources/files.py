"""Scans of Parquet and Arrow files, and of pyarrow datasets: the footers are read first, then the row groups."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.columns.names import field_of
from tensorstash.columns.types import is_text
from tensorstash.common.threads import each, threads
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.file import REQUESTS, File
from tensorstash.sources.filter import Filter
from tensorstash.sources.footers import Footer, read_footer
from tensorstash.sources.hive_keys import agreeing, constant, kept_files, key_types
from tensorstash.sources.int96 import int96_columns, outside_nanoseconds
from tensorstash.sources.row_groups import (
    as_dictionaries,
    check_counts,
    kept_groups,
    range_of,
    rows_at_a_time,
)
from tensorstash.sources.scan import BATCH_ROWS, Scan, Wanted, in_order
from tensorstash.sources.storage import without_null_views
from tensorstash.sources.streams import scan_stream
from tensorstash.sources.unify import unify


def scan_files(
    files: Sequence[File],
    label: str,
    wanted: Wanted,
    condition: Filter | None,
    progress: bool | None,
) -> Scan:
    """Read all footers in parallel and unify them. Files and row groups that the filter excludes are left out."""
    types = key_types(files)
    look = partial(read_footer, types=types, wanted=wanted)
    if condition is not None and types:
        first_footer = look(files[0])
        keys = {key: arrow for key, arrow in types.items() if key not in first_footer.own}
        files = kept_files(files, keys, first_footer.schema, condition) or files[:1]
    at_a_time = threads() if all(file.system is None for file in files) else REQUESTS
    footers = each(look, files, at_a_time, "footers", progress)
    names = [str(footer.file) for footer in footers]
    whole, notes = unify(names, [footer.schema for footer in footers], wanted)
    kept = [
        range(len(footer.rows)) if footer.fragment is None else kept_groups(footer.fragment, whole, condition)
        for footer in footers
    ]
    wide = _wide_times(whole, wanted, [*zip(footers, kept)], progress)
    whole = _in_microseconds(whole, wide, footers)
    notes += tuple(
        f"{name!r} is read as {whole.field(name).type}: its times do not fit into ns" for name in sorted(wide)
    )
    pieces = [
        (footer.place(index), rows, partial(_cast_batches, footer, index, whole, wide) if index in groups else None)
        for footer, groups in zip(footers, kept)
        for index, rows in enumerate(footer.rows)
    ]
    metas = [footer.fragment and (footer.fragment.metadata, footer.fragment.physical_schema) for footer in footers]
    of_paths = frozenset(types).difference(*(footer.own for footer in footers))
    return Scan(label, whole, in_order(pieces), len(pieces), notes, partial(range_of, metas), of_paths)


def _wide_times(
    schema: pa.Schema, wanted: Wanted, kept: Sequence[tuple[Footer, Collection[int]]], progress: bool | None
) -> set[str]:
    """The columns with times in INT96 that do not fit into nanoseconds; reads such columns if there are any."""
    jobs, names = [], wanted.among(dict.fromkeys(schema.names))
    for footer, groups in kept:
        own = [name for name in names if name in footer.own]
        columns = [] if footer.fragment is None else int96_columns(footer.fragment.metadata, footer.schema, own)
        jobs += [(footer.fragment, group, footer.place(group), columns) for group in groups if columns]
    return set().union(*each(lambda job: outside_nanoseconds(*job), jobs, threads(), "times", progress))


def _in_microseconds(schema: pa.Schema, names: Iterable[str], footers: Sequence[Footer]) -> pa.Schema:
    """The schema with INT96 of these columns in microseconds."""
    for name in names:
        fragments = (footer.fragment for footer in footers if footer.fragment and name in footer.own)
        meta = next(one.metadata for one in fragments if int96_columns(one.metadata, one.physical_schema, [name]))
        read = pq.ParquetFile(pa.BufferReader(b""), metadata=meta, coerce_int96_timestamp_unit="us").schema_arrow
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(read.field(name).type))
    return schema


def _cast_batches(
    footer: Footer, index: int, schema: pa.Schema, wide: Collection[str], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, record batch or stream, cast to the schema that all files share."""
    stored = [name for name in names if name in footer.own]
    keys, rows = dict(footer.file.keys), footer.rows[index]
    if stored:
        is_arrow = footer.fragment is None
        batches = _arrow_batches(footer, index, stored) if is_arrow else _stored_batches(footer, index, stored, wide)
    else:  # the file need not be opened
        sizes = (min(BATCH_ROWS, rows - start) for start in range(0, rows, BATCH_ROWS))
        batches = (pa.record_batch({"": pa.nulls(size)}) for size in sizes)
    for batch in agreeing(batches, footer.file, sum(footer.rows[:index])):
        columns = dict(zip(batch.schema.names, batch.columns))
        arrays = [
            _widened(columns[name], schema.field(name), footer.place(index))
            if name in stored
            else constant(keys[name], schema.field(name).type, batch.num_rows)
            for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _widened(array: pa.Array, field: pa.Field, place: str) -> pa.Array:
    if array.type == field.type or is_text(field.type):
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"A column needs one type for the values of all files; {field.name!r} is {array.type} in {place}, which "
            f"does not fit into {field.type}: {error}. Write all files with one type."
        ) from error


def _stored_batches(
    footer: Footer, group: int, names: Sequence[str], wide: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, with INT96 of the `wide` columns in microseconds: a reader has one unit for all."""
    assert footer.fragment is not None
    rows = rows_at_a_time(footer.fragment.metadata, group, footer.schema, names)
    parts = [("us", [name for name in names if name in wide]), (None, [name for name in names if name not in wide])]
    readers = [_parquet_batches(footer, group, part, rows, unit) for unit, part in parts if part]
    for batches in zip(*readers, strict=True):
        columns = {name: array for batch in batches for name, array in zip(batch.schema.names, batch.columns)}
        yield batches[0] if len(batches) == 1 else pa.record_batch(columns)


def _parquet_batches(
    footer: Footer, group: int, names: Collection[str], rows: int = BATCH_ROWS, unit: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, with INT96 in nanoseconds or another unit."""
    assert footer.fragment is not None
    meta = footer.fragment.metadata
    texts = [name for name in names if is_text(footer.schema.field(name).type)]
    remote = footer.file.system is not None
    with (
        footer.file.open() as source,
        pq.ParquetFile(
            source,
            metadata=meta,
            # a dictionary and codes are smaller than one string per row
            read_dictionary=as_dictionaries(meta, group, footer.schema, texts),
            # of a remote file, request all columns at once; a local file would only take more memory
            pre_buffer=remote,
            buffer_size=0 if remote else 1 << 20,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=unit,
        ) as file,
    ):
        batches = file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)
        for number, batch in enumerate(batches):
            if not number:
                check_counts(meta, group, footer.schema, names, footer.place(group))
            batch.validate(full=True)  # in a damaged file, codes may be out of range and texts invalid UTF-8
            yield batch


def _arrow_batches(footer: Footer, index: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    fields = sorted(footer.schema.get_field_index(name) for name in names)
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with footer.file.open() as opened:
        if footer.piece == "stream":
            batches: Iterable[pa.RecordBatch] = pa.ipc.open_stream(opened, options=options)
        else:
            batches = [pa.ipc.open_file(opened, options=options).get_batch(index)]
        for batch in batches:
            batch.validate(full=True)  # nothing else checks the offsets and codes of an IPC file
            yield without_null_views(batch)


def scan_pyarrow_dataset(source: Any, wanted: Wanted, condition: Filter | None, progress: bool | None) -> Scan:
    """The row groups of a pyarrow dataset of Parquet files, whose footers have the row counts; others are streams."""
    asked = None if condition is None or condition.formula is not None else condition.fitted(source.schema).expression
    fragments: list[Any] = [None]
    with suppress(ValueError):  # the dataset has a filter or a projection
        try:
            fragments = [*source.get_fragments(asked)]
        except pa.ArrowException:  # a filter that does not fit the columns raises later, with their names
            fragments = [*source.get_fragments()]
    if not all(isinstance(fragment, pads.ParquetFileFragment) for fragment in fragments):
        return scan_stream(source, wanted, condition, progress)
    label, schema = f"the pyarrow {type(source).__name__}", source.schema
    for name in wanted.among(dict.fromkeys(schema.names)):
        field_of(schema, name, label)
    footers, pieces = [], []
    for fragment in fragments:
        try:
            footers.append((fragment.metadata, fragment.physical_schema))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{fragment.path} is not a readable Parquet file: {error}") from error
        kept, (meta, physical) = kept_groups(fragment, schema, condition), footers[-1]
        times = int96_columns(meta, physical, wanted.among(physical.names))
        for group in fragment.row_groups:
            if times and group.id in kept:
                _check_int96(fragment, group.id, times)
            batches = partial(_fragment_batches, fragment, group.id, schema) if group.id in kept else None
            pieces.append((f"{fragment.path}, row group {group.id}", group.num_rows, batches))
    keys = frozenset(schema.names).difference(*(physical.names for _, physical in footers)) if footers else frozenset()
    return Scan(label, schema, in_order(pieces), len(pieces), (), partial(range_of, footers), keys)


def _check_int96(fragment: pads.ParquetFileFragment, group: int, names: Sequence[str]) -> None:
    """Refuse times that pyarrow would wrap."""
    if wide := outside_nanoseconds(fragment, group, f"{fragment.path}, row group {group}", names):
        raise DataError(
            f"Times must fit into their unit; column {min(wide)!r} of {fragment.path} is INT96 with times that do not "
            "fit into nanoseconds. Make the dataset with "
            "format=pyarrow.dataset.ParquetFileFormat(coerce_int96_timestamp_unit='us')."
        )


def _fragment_batches(
    fragment: pads.ParquetFileFragment, group: int, schema: pa.Schema, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    options = {"schema": schema, "columns": list(names), "batch_size": BATCH_ROWS}
    chosen = fragment.subset(row_group_ids=[group])
    yield from chosen.to_batches(**options, use_threads=False, batch_readahead=1, fragment_readahead=0)
