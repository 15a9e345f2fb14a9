"""Sources of files with footers, and of pyarrow datasets: all footers are read first, then the pieces of the files."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow import fs

from tensorstash.common.threads import map_in_threads, threads
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.file import REQUESTS, File
from tensorstash.sources.filter import Filter
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.formats import FORMATS, Format, format_of
from tensorstash.sources.hive_keys import columns_of_keys, kept_files, key_types
from tensorstash.sources.int96 import outside_nanoseconds
from tensorstash.sources.parquet import RowGroups
from tensorstash.sources.read import BATCH_ROWS, Source, Wanted, in_order
from tensorstash.sources.streams import open_stream
from tensorstash.sources.unify import unify, widened
from tensorstash.sources.unreadable import why_unreadable

# the row groups of a file, the numbers of those that are read, and their places for messages
ReadGroups = tuple[RowGroups, Collection[int], Callable[[int], str]]


def open_files(
    files: Sequence[File],
    label: str,
    wanted: Wanted,
    condition: Filter | None,
    progress: bool | None,
) -> Source:
    """Read all footers in parallel and unify them. Files and row groups that the filter excludes are left out."""
    types = key_types(files)
    footers = _footers(files, types, wanted, condition, progress)
    names = [str(footer.file) for footer in footers]
    whole, notes = unify(names, [_schema(footer, types) for footer in footers], wanted)
    kept = [footer.groups.kept(whole, condition) if footer.groups else range(len(footer.rows)) for footer in footers]
    read = [(footer.groups, groups, footer.place) for footer, groups in zip(footers, kept) if footer.groups]
    if wide := _wide_times(whole, wanted, read, progress):
        whole = _in_microseconds(whole, wide, footers)
        footers = [replace(footer, wide=wide) for footer in footers]
        notes += tuple(f"{n!r} is read as {whole.field(n).type}: its times do not fit into ns" for n in sorted(wide))
    pieces = [
        (footer.place(index), rows, partial(_cast_batches, footer, index, whole) if index in groups else None, keys)
        for footer, groups in zip(footers, kept)
        for keys in [columns_of_keys(footer.file, footer.stored, whole, types)]
        for index, rows in enumerate(footer.rows)
    ]
    of_paths = frozenset(types).difference(*(footer.own for footer in footers))
    is_remote = any(file.system is not None for file in files)
    return Source(label, whole, in_order(pieces, label), len(pieces), notes, of_paths, is_remote=is_remote)


def _footers(
    files: Sequence[File],
    types: Mapping[str, pa.DataType],
    wanted: Wanted,
    condition: Filter | None,
    progress: bool | None,
) -> list[Footer]:
    """The footers of the files whose keys, of these `types`, do not contradict the filter."""
    look = partial(_footer, wanted=wanted, readers={form: Readers() for form in FORMATS})
    if condition is not None and types:
        first = look(files[0])
        keys = {key: arrow for key, arrow in types.items() if key not in first.own}
        files = kept_files(files, keys, pa.schema([*first.stored, *keys.items()]), condition)
    at_a_time = threads() if all(file.system is None for file in files) else REQUESTS
    return map_in_threads(look, files, at_a_time, "footers", progress)


def _footer(file: File, wanted: Wanted, readers: Mapping[Format, Readers]) -> Footer:
    form = format_of(file.name)
    assert form.footer is not None
    try:
        return form.footer(file, wanted, readers[form])
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{file} is not a readable {form.name} file: {why_unreadable(file, error)}") from error


def _schema(footer: Footer, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of a file, then the keys of its path, of these types; a column takes precedence over a key."""
    keys = [(key, types[key]) for key in dict(footer.file.keys) if key not in footer.own]
    return pa.schema([*footer.stored, *keys]) if keys else footer.stored  # there may be thousands of columns


def _wide_times(schema: pa.Schema, wanted: Wanted, kept: Sequence[ReadGroups], progress: bool | None) -> set[str]:
    """The columns with times in INT96 that do not fit into nanoseconds; reads such columns if there are any."""
    jobs, names = [], wanted.among(dict.fromkeys(schema.names))
    for groups, numbers, place in kept:
        columns = groups.int96(names)
        jobs += [(groups.fragment, number, place(number), columns) for number in numbers if columns]
    return set().union(*map_in_threads(lambda job: outside_nanoseconds(*job), jobs, threads(), "times", progress))


def _in_microseconds(schema: pa.Schema, names: Iterable[str], footers: Sequence[Footer]) -> pa.Schema:
    """The schema with INT96 of these columns in microseconds."""
    for name in names:
        meta = next(footer.groups.meta for footer in footers if footer.groups and footer.groups.int96([name]))
        read = pq.ParquetFile(pa.BufferReader(b""), metadata=meta, coerce_int96_timestamp_unit="us").schema_arrow
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(read.field(name).type))
    return schema


def _cast_batches(footer: Footer, index: int, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a piece of a file, cast to the schema that all files share."""
    place = footer.place(index)
    for batch in footer.decode(footer, index, names):
        columns = dict(zip(batch.schema.names, batch.columns))
        arrays = [widened(columns[name], schema.field(name), place) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def open_pyarrow_dataset(source: Any, wanted: Wanted, condition: Filter | None, progress: bool | None) -> Source:
    """The row groups of a pyarrow dataset of Parquet files, whose footers have the row counts; others are streams."""
    asked = None if condition is None or condition.formula is not None else condition.fitted(source.schema).expression
    if condition and any(pa.types.is_dictionary(source.schema.field(n).type) for n in condition.names(source.schema)):
        asked = None  # up to 25 pyarrow takes no dictionary to have nulls
    fragments: list[Any] = [None]
    with suppress(ValueError):  # the dataset has a filter or a projection
        try:
            fragments = [*source.get_fragments(asked)]
        except pa.ArrowException:  # a filter that does not fit the columns raises later, with their names
            fragments = [*source.get_fragments()]
    if not all(isinstance(fragment, pads.ParquetFileFragment) for fragment in fragments):
        return open_stream(source, wanted, condition, progress)
    label, schema = f"the pyarrow {type(source).__name__}", source.schema
    read, pieces = list[ReadGroups](), []
    for fragment in fragments:
        try:
            groups, place = RowGroups(fragment), f"{fragment.path}, row group {{}}".format
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{fragment.path} is not a readable Parquet file: {error}") from error
        kept = groups.kept(schema, condition)
        read.append((groups, {group.id for group in fragment.row_groups if group.id in kept}, place))
        for group in fragment.row_groups:
            batches = partial(_fragment_batches, fragment, group.id, schema) if group.id in kept else None
            pieces.append((place(group.id), group.num_rows, batches, ()))
    if wide := _wide_times(schema, wanted, read, progress):
        raise DataError(
            f"Times must fit into their unit; column {min(wide)!r} of {label} is INT96 with times that do not fit into "
            "nanoseconds. Make the dataset with "
            "format=pyarrow.dataset.ParquetFileFormat(coerce_int96_timestamp_unit='us')."
        )
    keys = frozenset(schema.names).difference(*(groups.schema.names for groups, *_ in read)) if read else frozenset()
    is_remote = not all(isinstance(fragment.filesystem, fs.LocalFileSystem) for fragment in fragments)
    return Source(label, schema, in_order(pieces, label), len(pieces), (), keys, is_remote=is_remote)


def _fragment_batches(
    fragment: pads.ParquetFileFragment, group: int, schema: pa.Schema, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    yield from fragment.subset(row_group_ids=[group]).to_batches(
        schema=schema,
        columns=list(names),
        batch_size=BATCH_ROWS,
        use_threads=False,
        batch_readahead=1,
        fragment_readahead=0,
    )
