"""The footers of Parquet and Arrow IPC files: their columns, and the row counts of their pieces."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as pads

from tensorstash.columns.schema import Type
from tensorstash.errors import SourceError
from tensorstash.sources.csv_files import CsvFile, open_csv
from tensorstash.sources.file import ARROW, HERE, File
from tensorstash.sources.partition_keys import with_keys
from tensorstash.sources.scan import Wanted

_ARROW_MAGIC = b"ARROW1"  # the first bytes of an IPC file; a stream has none
_FORMAT = pads.ParquetFileFormat()

# functions that read other formats, by file name ending
_READERS = {
    ".txt": "pl.read_csv",
    ".bz2": "pandas.read_csv",
    ".xz": "pandas.read_csv",
    ".zip": "pandas.read_csv",
    ".json": "pl.read_json",
    ".jsonl": "pl.read_ndjson",
    ".ndjson": "pl.read_ndjson",
    ".avro": "pl.read_avro",
    ".xlsx": "pl.read_excel",
    ".orc": "pyarrow.orc.read_table",
    ".h5": "pandas.read_hdf",
    ".hdf5": "pandas.read_hdf",
    ".pkl": "pandas.read_pickle",
    ".npz": "numpy.load",
}


@dataclass(frozen=True, slots=True)
class Footer:
    """The columns and row counts of a file, read from its footer or, for a stream, from the whole file."""

    file: File
    schema: pa.Schema  # the columns of the file, then the partition keys of its path
    own: frozenset[str]  # the columns stored in the file
    rows: tuple[int, ...]  # the row count of each row group, record batch or block of lines, or of the whole stream
    piece: str  # what `rows` counts: "row group", "record batch", "block" or "stream"
    fragment: pads.ParquetFileFragment | None  # of a Parquet file: kept because parsing the footer again may take long
    csv: CsvFile | None = None  # of a CSV file


def read_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """The footer of a file, whose partition keys have these `types`."""
    try:
        if file.path.lower().endswith(ARROW):
            return _arrow_footer(file, types, wanted)
        return _parquet_footer(file, types)
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        ending = next((ending for ending in _READERS if file.path.lower().endswith(ending)), None)
        if ending is None:
            raise SourceError(f"{file} is not a readable Parquet or Arrow IPC file: {error}") from error
        raise SourceError(
            f"A source is Parquet, CSV or Arrow IPC files; {file} ends with {ending}. Load it as a frame: "
            f"ts.load({_READERS[ending]}(...), ...)."
        ) from error


def _parquet_footer(file: File, types: Mapping[str, pa.DataType]) -> Footer:
    fragment = _FORMAT.make_fragment(file.path, file.system or HERE)
    meta, own = fragment.metadata, fragment.physical_schema
    rows = tuple(meta.row_group(index).num_rows for index in range(meta.num_row_groups))
    if sum(rows) != meta.num_rows or min(rows, default=0) < 0:
        raise SourceError(
            f"{file} is damaged: its row groups have {sum(rows):,} rows, its footer says {meta.num_rows:,}. Write the "
            "file again."
        )
    return Footer(file, with_keys(own, file, types), frozenset(own.names), rows, "row group", fragment)


def _arrow_footer(file: File, types: Mapping[str, pa.DataType], wanted: Wanted) -> Footer:
    """Row counts are known only from the batches: one column of each is read, through a memory map if it is local."""
    with pa.memory_map(file.path) if file.system is None else file.open() as opened:
        whole = opened.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        opened.seek(0)
        own = (pa.ipc.open_file(opened) if whole else pa.ipc.open_stream(opened)).schema
        opened.seek(0)
        fields = [own.names.index(name) for name in (wanted.among(own.names) or own.names)[:1]]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        if whole:
            reader = pa.ipc.open_file(opened, options=options)
            rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
        else:
            rows = [sum(batch.num_rows for batch in pa.ipc.open_stream(opened, options=options))]
    piece = "record batch" if whole else "stream"
    return Footer(file, with_keys(own, file, types), frozenset(own.names), tuple(rows), piece, None)


def count_csv(file: File, types: Mapping[str, pa.DataType], read_as: Mapping[str, Type]) -> Footer:
    """The equivalent of a footer for a CSV file, with its rows counted; `read_as` gives the types of its columns."""
    found = open_csv(file, read_as)
    rows = tuple(block.rows for block in found.blocks)
    return Footer(
        file, with_keys(found.header.schema, file, types), frozenset(found.header.names), rows, "block", None, found
    )
