"""The footers of Parquet and Arrow IPC files: their columns, and the row counts of their pieces."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from tensorstash.errors import SourceError
from tensorstash.sources.file import ARROW, HERE, File
from tensorstash.sources.filter import Filter
from tensorstash.sources.scan import Wanted

_ARROW_MAGIC = b"ARROW1"  # the first bytes of an IPC file; a stream has none
_FORMAT = pads.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class Footer:
    """The columns and row counts of a file, read from its footer or, for a stream, from the whole file."""

    file: File
    schema: pa.Schema  # the columns of the file, then the partition keys of its path
    own: frozenset[str]  # the columns stored in the file
    rows: tuple[int, ...]  # the row count of each row group or record batch, or of the whole stream
    piece: str  # what `rows` counts: "row group", "record batch" or "stream"
    fragment: pads.ParquetFileFragment | None  # of a Parquet file: kept because parsing the footer again may take long


def read_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """The footer of a file, whose partition keys have these `types`."""
    try:
        if file.path.lower().endswith(ARROW):
            return _arrow_footer(file, types, wanted)
        return _parquet_footer(file, types)
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        remedy = ". Load other formats as frames that polars or pandas read: ts.load(pl.read_json(...), ...)."
        raise SourceError(
            f"{file} is not a readable Parquet or Arrow IPC file: {error}{'' if isinstance(error, OSError) else remedy}"
        ) from error


def _parquet_footer(file: File, types: Mapping[str, pa.DataType]) -> Footer:
    fragment = _FORMAT.make_fragment(file.path, file.system or HERE)
    meta, schema = fragment.metadata, fragment.physical_schema
    rows = tuple(meta.row_group(index).num_rows for index in range(meta.num_row_groups))
    if sum(rows) != meta.num_rows or min(rows, default=0) < 0:
        raise SourceError(
            f"{file} is damaged: its row groups have {sum(rows):,} rows, its footer says {meta.num_rows:,}. Write the "
            "file again."
        )
    return Footer(file, _with_keys(schema, file, types), frozenset(schema.names), rows, "row group", fragment)


def _arrow_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """Row counts are known only from the batches: one column of each is read, through a memory map if it is local."""
    with pa.memory_map(file.path) if file.system is None else file.open() as opened:
        whole = opened.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        opened.seek(0)
        schema = (pa.ipc.open_file(opened) if whole else pa.ipc.open_stream(opened)).schema
        opened.seek(0)
        fields = [schema.names.index(name) for name in (wanted.among(schema.names) or schema.names)[:1]]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        if whole:
            reader = pa.ipc.open_file(opened, options=options)
            rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
        else:
            rows = [sum(batch.num_rows for batch in pa.ipc.open_stream(opened, options=options))]
    piece = "record batch" if whole else "stream"
    return Footer(file, _with_keys(schema, file, types), frozenset(schema.names), tuple(rows), piece, None)


def _with_keys(schema: pa.Schema, file: File, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema with the keys of the path appended; a column stored in the file takes precedence over a key."""
    return pa.schema([*schema, *((key, types[key]) for key in dict(file.keys) if key not in schema.names)])


# Partition keys: the columns that come from directories named `key=value`


def key_types(files: Sequence[File]) -> dict[str, pa.DataType]:
    """The type of each key: int64 if all its values are integers, else text."""
    values: dict[str, set[str | None]] = {}
    for keys in {file.keys for file in files}:
        for key, value in keys:
            values.setdefault(key, set()).add(value)
    text = pa.dictionary(pa.int32(), pa.string())
    return {key: pa.int64() if all(map(_is_integer, texts)) else text for key, texts in values.items()}


def _is_integer(value: str | None) -> bool:
    return value is None or (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 19)


def constant(value: str | None, arrow: pa.DataType, rows: int) -> pa.Array:
    """An array that repeats the value of a key."""
    return pa.array([value], pa.string()).cast(arrow).take(pa.array(np.zeros(rows, np.int32)))


def kept_files(
    files: Sequence[File], types: Mapping[str, pa.DataType], schema: pa.Schema, condition: Filter
) -> Sequence[File]:
    """The files whose keys, of these `types`, do not contradict the filter; `schema` has all columns of a file."""
    if condition.formula is not None:
        return files
    claims = [_claim(file, types) for file in files]
    fragments = [_FORMAT.make_fragment(str(k), HERE, partition_expression=claim) for k, claim in enumerate(claims)]
    dataset = pads.FileSystemDataset(fragments, schema, _FORMAT, HERE)
    with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, by name
        return [files[int(fragment.path)] for fragment in dataset.get_fragments(condition.fitted(schema).expression)]
    return files


def _claim(file: File, types: Mapping[str, pa.DataType]) -> pc.Expression:
    """The condition that the keys of a path guarantee for every row of the file."""
    claim = pc.scalar(True)
    for key, value in file.keys:
        if key in types:
            plain = value if value is None or pa.types.is_dictionary(types[key]) else int(value)
            claim &= pc.field(key).is_null() if plain is None else pc.field(key) == plain
    return claim
