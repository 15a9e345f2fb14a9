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
from tensorstash.sources.footers import Footer, constant, kept_files, key_types, read_footer
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
    pieces = []
    for footer in footers:
        kept = range(len(footer.rows)) if footer.fragment is None else kept_groups(footer.fragment, whole, condition)
        for index, rows in enumerate(footer.rows):
            batches = partial(_cast_batches, footer, index, whole) if index in kept else None
            pieces.append((footer.place(index), rows, batches))
    metas = [footer.fragment and (footer.fragment.metadata, footer.fragment.physical_schema) for footer in footers]
    of_paths = frozenset(types).difference(*(footer.own for footer in footers))
    return Scan(label, whole, in_order(pieces, label), len(pieces), notes, partial(range_of, metas), of_paths)


def _cast_batches(footer: Footer, index: int, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, record batch or stream, cast to the schema that all files share."""
    stored = [name for name in names if name in footer.own]
    keys, rows = dict(footer.file.keys), footer.rows[index]
    if stored:
        batches = (_arrow_batches if footer.fragment is None else _parquet_batches)(footer, index, stored)
    else:  # the file need not be opened
        sizes = (min(BATCH_ROWS, rows - start) for start in range(0, rows, BATCH_ROWS))
        batches = (pa.record_batch({"": pa.nulls(size)}) for size in sizes)
    for batch in batches:
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


def _parquet_batches(footer: Footer, group: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
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
        ) as file,
    ):
        rows = rows_at_a_time(meta, group, footer.schema, names)
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
        kept = kept_groups(fragment, schema, condition)
        for group in fragment.row_groups:
            batches = partial(_fragment_batches, fragment, group.id, schema) if group.id in kept else None
            pieces.append((f"{fragment.path}, row group {group.id}", group.num_rows, batches))
    keys = frozenset(schema.names).difference(*(physical.names for _, physical in footers)) if footers else frozenset()
    return Scan(label, schema, in_order(pieces, label), len(pieces), (), partial(range_of, footers), keys)


def _fragment_batches(
    fragment: pads.ParquetFileFragment, group: int, schema: pa.Schema, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    options = {"schema": schema, "columns": list(names), "batch_size": BATCH_ROWS}
    chosen = fragment.subset(row_group_ids=[group])
    yield from chosen.to_batches(**options, use_threads=False, batch_readahead=1, fragment_readahead=0)
