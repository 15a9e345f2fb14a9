"""Parquet and Arrow IPC files as a scan: all footers first, compared; then readers of row groups and batches."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from tensorstash.columns.schema import Type
from tensorstash.columns.types import is_text
from tensorstash.common.threads import each, threads
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.csv_files import first_types
from tensorstash.sources.file import REQUESTS, File
from tensorstash.sources.filter import Filter
from tensorstash.sources.footers import Footer, count_csv, read_footer
from tensorstash.sources.partition_keys import constant, kept_files, key_types
from tensorstash.sources.scan import BATCH_ROWS, Scan, Unit, Wanted
from tensorstash.sources.statistics import (
    as_dictionaries,
    check_counts,
    check_dictionaries,
    kept_groups,
    range_of,
    rows_at_a_time,
)
from tensorstash.sources.unify import unify
from tensorstash.sources.views import without_null_views


def scan_files(
    files: Sequence[File],
    label: str,
    wanted: Wanted,
    condition: Filter | None,
    progress: bool | None,
    *,
    schema: Mapping[str, Type],
) -> Scan:
    """Read all footers in parallel and compare them. Files and row groups that the filter excludes are left out."""
    types = key_types(files)
    look = _look(files, types, wanted, schema)
    if condition is not None and types:
        first_footer = look(files[0])
        keys = {key: arrow for key, arrow in types.items() if key not in first_footer.own}
        files = kept_files(files, keys, first_footer.schema, condition) or files[:1]
    at_a_time = threads() if all(file.system is None for file in files) else REQUESTS
    footers = each(look, files, at_a_time, "footers", progress)
    names = [str(footer.file) for footer in footers]
    whole, notes = unify(names, [footer.schema for footer in footers], wanted)
    units, start, first = [], 0, 0
    for footer in footers:
        kept: Collection[int] = range(len(footer.rows))
        if condition is not None and footer.fragment is not None:
            kept = kept_groups(footer.fragment, footer.schema, condition, whole)
        for index, rows in enumerate(footer.rows):
            if index in kept:
                read = partial(_read, footer, index, whole)
                units.append(Unit(_place(footer, index), start, rows, read, first))
                start += rows
            first += rows
    pieces = sum(len(footer.rows) for footer in footers)
    metas = [footer.fragment and (footer.fragment.metadata, footer.fragment.physical_schema) for footer in footers]
    columnar = footers[0].csv is None
    return Scan(label, whole, tuple(units), pieces, notes, partial(range_of, metas), columnar)


def _look(
    files: Sequence[File], types: Mapping[str, pa.DataType], wanted: Wanted, schema: Mapping[str, Type]
) -> Callable[[File], Footer]:
    """How the footer of each file is read, which must be alike for all."""
    of_csv = next((file for file in files if file.is_csv), None)
    if of_csv is None:
        check_no_schema(schema, str(files[0]))
        return partial(read_footer, types=types, wanted=wanted)
    if other := next((file for file in files if not file.is_csv), None):
        raise SourceError(
            f"All files of a source are CSV files, or none is; {of_csv} is one, and {other} is not. Name "
            "those of one kind."
        )
    return partial(count_csv, types=types, read_as=first_types(files, schema))


def check_no_schema(schema: Mapping[str, Type], where: str) -> None:
    """Refuse `schema=` for a source that has types."""
    if schema:
        raise ValueError(
            f"schema= says the types of columns of CSV files; {where} has types of its own. Leave it out; "
            "ts.column(..., dtype=...) casts."
        )


def _place(footer: Footer, index: int) -> str:
    if footer.csv is not None:
        return footer.csv.place(index)
    return f"{footer.file}, {footer.piece} {index}" if footer.piece != "stream" else str(footer.file)


def _read(footer: Footer, index: int, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, record batch or stream, cast to the schema that all files share."""
    own = [name for name in names if name in footer.own]
    keys = dict(footer.file.keys)
    for rows, columns in _batches(footer, index, own):
        arrays = [
            _widened(columns[name], schema.field(name), _place(footer, index))
            if name in columns
            else constant(keys[name], schema.field(name).type, rows)
            for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _batches(footer: Footer, index: int, names: Collection[str]) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """The row count of each batch, and the columns stored in the file; if there are none, the file is not opened."""
    if not names:
        rows = footer.rows[index]
        for begin in range(0, rows, BATCH_ROWS):
            yield min(BATCH_ROWS, rows - begin), {}
        return
    for batch in _opened(footer)(footer, index, names):
        yield batch.num_rows, dict(zip(batch.schema.names, batch.columns))


def _opened(footer: Footer) -> Callable[[Footer, int, Collection[str]], Iterable[pa.RecordBatch]]:
    if footer.csv is not None:
        return _csv_batches
    return _arrow_batches if footer.fragment is None else _parquet_batches


def _csv_batches(footer: Footer, index: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    assert footer.csv is not None
    return footer.csv.batches(index, [*names])


def _widened(array: pa.Array, field: pa.Field, place: str) -> pa.Array:
    if array.type == field.type or is_text(field.type):
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        if pa.types.is_floating(field.type):
            raise DataError(
                f"Integers and floats of one column in different files are read as floats, exactly; column "
                f"{field.name!r} is {array.type} in {place}, and does not fit into {field.type}: {error}. Write all "
                "files with one type."
            ) from error
        if not pa.types.is_timestamp(field.type):
            raise
        raise DataError(
            f"Files of different units are read in the finest; column {field.name!r} is {array.type} in {place}, and "
            f"does not fit into {field.type}: {error}. Write all files with one unit."
        ) from error


def _parquet_batches(footer: Footer, group: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    assert footer.fragment is not None
    meta = footer.fragment.metadata
    texts = [name for name in names if is_text(footer.schema.field(name).type)]
    checked = [*texts, *(name for name in names if _is_wrapped(footer.schema.field(name).type))]
    check_dictionaries(meta, group, footer.schema, texts, _place(footer, group))
    remote = footer.file.system is not None
    with (
        footer.file.open() if remote else pa.OSFile(footer.file.path) as source,
        pq.ParquetFile(
            source,
            metadata=meta,
            # a dictionary and codes are smaller than one string per row
            read_dictionary=as_dictionaries(meta, group, footer.schema, texts),
            # for a local file it would hold more than is needed; for a remote one it requests all columns at once
            pre_buffer=remote,
            buffer_size=0 if remote else 1 << 20,
            page_checksum_verification=True,
        ) as file,
    ):
        rows = rows_at_a_time(meta, group, footer.schema, names)
        batches = file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)
        for number, batch in enumerate(batches):
            if not number:
                check_counts(meta, group, footer.schema, names, _place(footer, group))
            for name in checked:  # in a damaged file, codes may be out of range and texts invalid UTF-8
                batch.column(name).validate(full=True)
            yield batch


def _is_wrapped(arrow: pa.DataType) -> bool:
    """Whether there may be offsets, codes and texts inside."""
    return bool(pa.types.is_nested(arrow) or pa.types.is_run_end_encoded(arrow)) or isinstance(
        arrow, pa.BaseExtensionType
    )


def _arrow_batches(footer: Footer, index: int, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    fields = sorted(footer.schema.get_field_index(name) for name in names)
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.OSFile(footer.file.path) if footer.file.system is None else footer.file.open() as opened:
        if footer.piece == "stream":
            batches: Iterable[pa.RecordBatch] = pa.ipc.open_stream(opened, options=options)
        else:
            batches = [pa.ipc.open_file(opened, options=options).get_batch(index)]
        for batch in batches:
            batch.validate(full=True)  # nothing else checks the offsets and codes of an IPC file
            yield without_null_views(batch)
