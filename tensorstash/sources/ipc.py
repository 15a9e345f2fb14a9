"""Files and streams of Arrow IPC, whose batches alone have row counts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tensorstash.sources.file import File
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.read import Wanted
from tensorstash.sources.storage import without_null_views

_MAGIC = b"ARROW1"  # the first bytes of a file; a stream has none


def ipc_footer(file: File, wanted: Wanted, readers: Readers) -> Footer:
    """The record batches of a file, or a stream as a whole. One column is read, of a local file by a memory map."""
    with pa.memory_map(file.path) if file.system is None else file.open() as opened:
        is_stream = opened.read(len(_MAGIC)) != _MAGIC
        opened.seek(0)
        schema = _reader(opened, is_stream, None).schema
        opened.seek(0)
        first = (wanted.among(schema.names) or schema.names)[:1]
        reader = _reader(opened, is_stream, [schema.names.index(name) for name in first])
        if is_stream:
            return Footer(file, schema, [sum(batch.num_rows for batch in reader)], "", _of_stream, readers)
        rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
    return Footer(file, schema, rows, "record batch", _of_file, readers)


def _reader(opened: Any, is_stream: bool, fields: list[int] | None) -> Any:
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    return (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(opened, options=options)


def _of_file(footer: Footer, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    fields = sorted(map(footer.stored.get_field_index, names))
    key = footer.file, fields
    with footer.readers.taken(key.__eq__, key, lambda: _reader(footer.file.open(), False, fields)) as reader:
        yield from _checked([reader.get_batch(index)])


def _of_stream(footer: Footer, _index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with footer.file.open() as opened:
        yield from _checked(_reader(opened, True, sorted(map(footer.stored.get_field_index, names))))


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        batch.validate(full=True)  # nothing else checks the offsets and codes of an IPC file
        yield without_null_views(batch)
