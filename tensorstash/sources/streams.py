"""Any producer of Arrow batches as a scan: the stream is read once and kept in a file on disk during the load.

A segment is laid out by its number of rows before anything is decoded, and a stream does not know that number. Many
streams can be read only once, but a load reads the columns in two passes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.names import check_for_polars, field_of
from tensorstash.columns.types import is_text
from tensorstash.common.forks import check_pool
from tensorstash.errors import SourceError
from tensorstash.sources.evaluate import first_line, is_elementwise
from tensorstash.sources.filter import Filter
from tensorstash.sources.locate import kind_of
from tensorstash.sources.scan import Scan, Unit, Wanted, in_order
from tensorstash.sources.spool import Spool
from tensorstash.sources.storage import without_views

if TYPE_CHECKING:
    import polars as pl

ROWS = 65_536  # of each batch in the file, whatever the producer's are, so that equal rows have equal keys
_VALUES = 1 << 20  # in each batch, judged by the first row, where that means fewer rows

Batches = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]  # columns -> their batches


def is_stream(source: Any) -> bool:
    """Whether a source hands out batches of columns."""
    is_producer = hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.ChunkedArray)
    return is_producer or kind_of(source) in _OPENERS


def check_repeatable(source: Any) -> None:
    """Refuse a source that can be read only once, for calls such as `plan` that would use it up."""
    if isinstance(source, pa.RecordBatchReader):
        raise ValueError(
            "A plan counts the rows of a source, and a RecordBatchReader can be read only once. Plan the source of the "
            "reader, or load it."
        )


def scan_stream(source: Any, wanted: Wanted, condition: Filter | None) -> Scan:
    """Read the wanted columns of a stream to its end; a LazyFrame leaves out rows that the filter excludes."""
    kind = kind_of(source)
    label = f"the {kind.replace('.', ' ')}"
    if kind == "polars.LazyFrame" and condition is not None:
        source = _filtered(source, condition)
    try:
        schema, batches = _OPENERS.get(kind, _open_arrow)(source)
        names = wanted.among(dict.fromkeys(schema.names))
        for name in names if wanted.names is None else _named(wanted.names, schema.names):
            field_of(schema, name, label)  # before it is used up
        units = spooled_parts([(label, batches(names))], pa.schema([schema.field(name) for name in names]), label)
    except SourceError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{label} cannot be read to its end: {' '.join(str(error).split())}") from error
    if not units and isinstance(source, pa.RecordBatchReader):
        raise SourceError(
            f"{label} has no rows: it is empty, or has been read before, which can be done only once. Make it again."
        )
    whole = pa.schema([field.with_type(kept_type(field.type)) for field in schema])
    return Scan(label, whole, units, len(units))


def _named(wanted: Iterable[str], names: Sequence[str]) -> list[str]:
    """The wanted names, longest paths first, without paths to fields of a column and without beginnings of a name."""
    return [
        name
        for name in sorted(wanted, key=lambda name: (-name.count("."), name))
        if name in names or not any(name.startswith(f"{column}.") or column.startswith(f"{name}.") for column in names)
    ]


# Producers: the schema, and how the batches of some columns are asked for


def _open_arrow(source: Any) -> tuple[pa.Schema, Batches]:
    reader = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
    return reader.schema, lambda names: (batch.select(list(names)) for batch in reader)


def _open_duckdb(source: Any) -> tuple[pa.Schema, Batches]:
    import duckdb

    def opened(choose: Callable[[], Any]) -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(choose())
        except duckdb.Error as error:  # such as a table that is no longer there
            raise OSError(str(error)) from error

    def batches(names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        return opened(lambda: source.select(*map(duckdb.ColumnExpression, names)))

    return opened(lambda: source.limit(0)).read_all().schema, batches


def _open_ibis(source: Any) -> tuple[pa.Schema, Batches]:
    return source.schema().to_pyarrow(), lambda names: source.select(*names).to_pyarrow_batches()


def _open_scanner(source: Any) -> tuple[pa.Schema, Batches]:
    return source.projected_schema, lambda names: (batch.select(list(names)) for batch in source.to_reader())


def _open_dataset(source: Any) -> tuple[pa.Schema, Batches]:
    return source.schema, lambda names: source.scanner(columns=list(names)).to_reader()


def _open_ray(source: Any) -> tuple[pa.Schema, Batches]:
    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = source.select_columns(list(names))
        for table in chosen.iter_batches(batch_format="pyarrow", batch_size=None):
            yield from table.select(list(names)).to_batches()

    schema = source.schema()
    if isinstance(getattr(schema, "base_schema", None), pa.Schema):
        return schema.base_schema, batches
    first = next(iter(source.limit(1).iter_batches(batch_format="pyarrow")))  # of blocks that are pandas frames
    return first.schema, batches


def _open_lazy(frame: "pl.LazyFrame") -> tuple[pa.Schema, Batches]:
    import polars as pl

    check_pool()

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from collected(frame.select(names))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise _uncollected(error) from error

    try:
        return arrow_schema(frame.collect_schema()), batches
    except pl.exceptions.PolarsError as error:
        raise _uncollected(error) from error


def _filtered(frame: "pl.LazyFrame", condition: Filter) -> "pl.LazyFrame":
    """The frame without rows that polars can tell the filter excludes, so that it need not read them."""
    import polars as pl

    check_pool()
    with suppress(pl.exceptions.PolarsError):  # what is wrong is refused later, by name
        schema = frame.collect_schema()
        predicate = condition.in_polars(schema)
        if predicate is not None and is_elementwise(predicate, schema):
            kept = frame.filter(predicate)
            kept.collect_schema()
            return kept
    return frame


def _uncollected(error: BaseException) -> SourceError:
    return SourceError(f"The polars LazyFrame cannot be collected: {first_line(error)}")


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow types of a schema of polars."""
    import polars as pl

    check_for_polars(schema)
    return pl.DataFrame(schema=schema).to_arrow().schema


def collected(frame: "pl.LazyFrame") -> Iterator[pa.RecordBatch]:
    """The rows of a frame in their order, a piece at a time."""
    for piece in frame.collect_batches(chunk_size=ROWS, maintain_order=True):
        yield from piece.to_arrow().to_batches()


# by the names of the types, so that no library is imported to compare with them; the others are plain streams
_OPENERS: dict[str, Callable[[Any], tuple[pa.Schema, Batches]]] = {
    "duckdb.DuckDBPyRelation": _open_duckdb,
    "ibis.Table": _open_ibis,
    "polars.LazyFrame": _open_lazy,
    "ray.Dataset": _open_ray,
    "ray.MaterializedDataset": _open_ray,
    "pyarrow.Scanner": _open_scanner,
    "pyarrow.FileSystemDataset": _open_dataset,
    "pyarrow.InMemoryDataset": _open_dataset,
    "pyarrow.UnionDataset": _open_dataset,
}


# The file


def spooled_parts(
    parts: Iterable[tuple[str, Iterable[pa.RecordBatch]]], schema: pa.Schema, label: str
) -> tuple[Unit, ...]:
    """Write the batches of each part of a source, which is named in messages, and read them as units.

    Each batch is a stream of its own, because a file would need one dictionary for all of them.
    """
    spool, written = Spool(label), []
    for place, batches in parts:
        for batch in _in_equal_pieces(batches, schema):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            written.append((place, batch.num_rows, spool.size))
            spool.append(sink.getvalue())
    whole = spool.mapped()
    return in_order((place, rows, partial(_spooled_batch, whole, offset)) for place, rows, offset in written)


def _spooled_batch(whole: pa.Buffer, offset: int, names: Sequence[str]) -> list[pa.RecordBatch]:
    return [pa.ipc.open_stream(whole.slice(offset)).read_next_batch().select(list(names))]


def _in_equal_pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of one size; of text each piece has the values that occur in it."""
    waiting: list[pa.RecordBatch] = []
    count = rows = 0
    for batch in batches:
        rows = rows or _rows_of(batch)
        for start in range(0, batch.num_rows, rows or 1):
            waiting.append(plain(batch.slice(start, rows)))
            count += waiting[-1].num_rows
            if count >= rows:
                whole = pa.Table.from_batches(waiting)
                yield _encoded(whole.slice(0, rows), schema)
                waiting, count = whole.slice(rows).to_batches(), count - rows
    if count:
        yield _encoded(pa.Table.from_batches(waiting), schema)


def _rows_of(batch: pa.RecordBatch) -> int:
    """How many rows a piece has: fewer than usual, if the first row has many columns or long lists; 0 without rows."""
    if not batch.num_rows:
        return 0
    values = sum(_count(column.slice(0, 1)) for column in batch.columns)
    return max(1, min(ROWS, _VALUES // max(values, 1)))


def _count(array: pa.Array) -> int:
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return len(array)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same values without dictionaries, which differ from batch to batch, and without views."""
    return pa.RecordBatch.from_arrays([*map(_plain_array, batch.columns)], names=batch.schema.names)


def _plain_array(array: pa.Array) -> pa.Array:
    array = without_views(array)
    if pa.types.is_dictionary(array.type):
        values = array.dictionary.cast(pa.large_string()) if is_text(array.type) else array.dictionary
        array = pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    return array.cast(pa.large_string()) if is_text(array.type) else array


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type of a column of that type without dictionaries and views."""
    if is_text(arrow):
        return pa.large_string()
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


def _encoded(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The same values as one batch, text as codes for the values that occur in it."""
    arrays = [column.combine_chunks() for column in table.columns]
    arrays = [pc.dictionary_encode(array) if is_text(array.type) else array for array in arrays]
    fields = [field.with_type(array.type) for field, array in zip(schema, arrays)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def kept_type(arrow: pa.DataType) -> pa.DataType:
    """The type of a column in the file."""
    return pa.dictionary(pa.int32(), pa.large_string()) if is_text(arrow) else plain_type(arrow)
