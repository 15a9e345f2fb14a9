"""The footers of Parquet and Arrow IPC files: their columns, and the row counts of their pieces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.common.memory import lacks_memory
from tensorstash.errors import SourceError
from tensorstash.sources.file import ARROW, File, here
from tensorstash.sources.row_groups import leaf_of
from tensorstash.sources.scan import Wanted
from tensorstash.sources.unreadable import why_unreadable

_ARROW_MAGIC = b"ARROW1"  # the first bytes of an IPC file; a stream has none
_FORMAT = pads.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class Footer:
    """The columns and row counts of a file, read from its footer or, for a stream, from the whole file."""

    file: File
    schema: pa.Schema  # the columns of the file, then the partition keys of its path
    own: frozenset[str]  # the columns stored in the file
    rows: Sequence[int]  # the row count of each row group or record batch, or of the whole stream
    piece: str  # what `rows` counts: "row group", "record batch" or "stream"
    fragment: pads.ParquetFileFragment | None  # of a Parquet file: kept because parsing the footer again may take long

    def place(self, index: int) -> str:
        """A piece of the file, for messages."""
        return f"{self.file}, {self.piece} {index}" if self.piece != "stream" else str(self.file)


def read_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """The footer of a file, whose partition keys have these `types`."""
    try:
        if file.name.endswith(ARROW):
            fragment, (schema, rows, piece) = None, _arrow_footer(file, wanted)
        else:
            fragment = _FORMAT.make_fragment(file.path, file.system or here())
            meta, piece = fragment.metadata, "row group"
            schema = _with_intervals(fragment.physical_schema, meta)
            rows = [meta.row_group(index).num_rows for index in range(meta.num_row_groups)]
            if sum(rows) != meta.num_rows or min(rows, default=0) < 0:
                raise SourceError(
                    f"{file} is damaged: its row groups have {sum(rows):,} rows, its footer says {meta.num_rows:,}. "
                    "Write the file again."
                )
        # a column stored in the file takes precedence over a key
        keys = [(key, types[key]) for key in dict(file.keys) if key not in schema.names]
        return Footer(file, pa.schema([*schema, *keys]), frozenset(schema.names), rows, piece, fragment)
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if lacks_memory(error):
            raise
        raise SourceError(
            f"{file} is not a readable Parquet or Arrow IPC file: {why_unreadable(file, error)}"
        ) from error


def _with_intervals(schema: pa.Schema, meta: pq.FileMetaData) -> pa.Schema:
    """The schema of a Parquet file with its intervals of time, which pyarrow reads as 12 bytes each."""
    for index, field in enumerate(schema):
        leaf = leaf_of(meta, schema, field.name) if field.type == pa.binary(12) else None
        if leaf is not None and meta.schema.column(leaf).converted_type == "INTERVAL":
            schema = schema.set(index, field.with_type(pa.month_day_nano_interval()))
    return schema


def _arrow_footer(file: File, wanted: Wanted) -> tuple[pa.Schema, list[int], str]:
    """Only the batches have row counts: one column of each is read, through a memory map if the file is local."""
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
    return schema, rows, "record batch" if whole else "stream"
