"""Sources of streams of Arrow batches, which are read once and kept in a file on disk during the load.

A load needs the number of rows before it decodes any, which a stream does not know, and reads columns in two passes,
while many streams can be read only once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.names import check_for_polars, field_of
from tensorstash.columns.types import is_text, value_type
from tensorstash.common.forks import check_pool
from tensorstash.common.progress import Bar, bar_of
from tensorstash.errors import SchemaError, SourceError, TensorstashError
from tensorstash.sources.evaluate import explained, is_elementwise
from tensorstash.sources.filter import Filter
from tensorstash.sources.locate import kind_of
from tensorstash.sources.read import Derived, Source, Unit, Wanted, in_order
from tensorstash.sources.spool import Spool
from tensorstash.sources.storage import decoded

if TYPE_CHECKING:
    import polars as pl

# rows of each batch in the file, whatever batches the producer makes, so that equal rows have equal keys
_ROWS = 65_536
_BYTES = 1 << 23  # most bytes of each batch, estimated from the first row: a limit for wide rows

# types of which DuckDB hands out other values, and types that it does not: from 2**127 on, and without the zone
_HANDED_OUT = {"UHUGEINT": "DOUBLE", "TIME WITH TIME ZONE": "TIME"}
_WRONG = re.compile(rf"\b({'|'.join(_HANDED_OUT)})\b")

Batches = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]  # columns -> their batches


def is_stream(source: Any) -> bool:
    """Whether a source produces Arrow batches."""
    is_producer = hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.ChunkedArray)
    return is_producer or kind_of(source) in _OPENERS


def open_stream(source: Any, wanted: Wanted, condition: Filter | None, progress: bool | None) -> Source:
    """Read the wanted columns of a stream to its end; a LazyFrame leaves out rows that a polars filter excludes."""
    kind = kind_of(source)
    label = f"the {kind.replace('.', ' ')}"
    if kind == "polars.LazyFrame" and condition is not None and condition.formula is not None:
        source = _filtered(source, condition.formula.expr)
    try:
        schema, batches = _OPENERS.get(kind, _open_arrow)(source)
        names = wanted.among(dict.fromkeys(schema.names))
        for name in [*names, *sorted(wanted.names or ())]:
            is_path = "." in name or any(other.startswith(f"{name}.") for other in wanted.names or ())
            if name in schema.names or not is_path:
                field_of(schema, name, label)  # raises before the stream is used up
        with bar_of(None, "reading", progress) as bar:
            units = spooled_parts([(label, batches(names), ())], schema, label, bar)
    except SourceError:
        raise
    except BaseException as error:  # a panic of polars is not an Exception
        library = kind_of(error).partition(".")[0]
        if kind == "ibis.Table" and isinstance(error, Exception) and not isinstance(error, TensorstashError):
            library = "ibis"  # its engines raise errors of any type
        if not isinstance(error, OSError) and library not in ("pyarrow", "pyo3_runtime", kind.partition(".")[0]):
            raise  # an error of tensorstash or of the user's code
        raise SourceError(f"{label} cannot be read to its end: {explained(error)}") from error
    if not units and isinstance(source, pa.RecordBatchReader):
        raise SourceError(
            f"{label} has no rows: it is empty, or it was read before. It can be read once; make it again."
        )
    whole = pa.schema([field.with_type(kept_type(field.type)) for field in schema])
    return Source(label, whole, units, len(units), copied=True)


def _open_arrow(source: Any) -> tuple[pa.Schema, Batches]:
    reader = source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
    return reader.schema, lambda names: (batch.select(list(names)) for batch in reader)


def _open_duckdb(source: Any) -> tuple[pa.Schema, Batches]:
    import duckdb

    def batches(names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        for name, kind in zip(source.columns, map(str, source.types)):
            if name in names and (said := _WRONG.sub(lambda found: _HANDED_OUT[found[0]], kind)) != kind:
                quoted = '"' + name.replace('"', '""') + '"'
                cast = f"* replace (cast({quoted} as {said}) as {quoted})"
                raise SchemaError(
                    f"DuckDB hands out other values for those of some types; column {name!r} is {kind}. Cast it in the "
                    f"query: relation.select({cast!r})."
                )
        return pa.RecordBatchReader.from_stream(source.select(*map(duckdb.ColumnExpression, names)))

    return pa.RecordBatchReader.from_stream(source.limit(0)).schema, batches


def _open_ibis(table: Any) -> tuple[pa.Schema, Batches]:
    def batches(names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        chosen = table.select(*names)
        connection = getattr(table.get_backend(), "con", None)
        if kind_of(connection).startswith("duckdb.") and not hasattr(connection, "fetch_record_batch"):
            return chosen.to_pyarrow().to_batches()  # from DuckDB 2 on, ibis 12 asks for what is not there
        return chosen.to_pyarrow_batches()

    return table.schema().to_pyarrow(), batches


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
    # blocks that are pandas frames have no Arrow schema
    return next(iter(source.limit(1).iter_batches(batch_format="pyarrow"))).schema, batches


def _open_lazy(frame: "pl.LazyFrame") -> tuple[pa.Schema, Batches]:
    import polars as pl

    check_pool()
    schema = frame.collect_schema()
    check_for_polars(schema)
    return pl.DataFrame(schema=schema).to_arrow().schema, lambda names: collected(frame.select(names))


def _filtered(frame: "pl.LazyFrame", condition: "pl.Expr") -> "pl.LazyFrame":
    """The frame without the rows that a condition excludes, which polars need not read."""
    import polars as pl

    check_pool()
    with suppress(pl.exceptions.PolarsError):  # errors are raised later, with the names of the columns
        if is_elementwise(condition, frame.collect_schema()):
            kept = frame.filter(condition)
            kept.collect_schema()
            return kept
    return frame


def collected(frame: "pl.LazyFrame") -> Iterator[pa.RecordBatch]:
    """The rows of a frame as Arrow batches, in order."""
    for piece in frame.collect_batches(chunk_size=_ROWS, maintain_order=True):
        yield from piece.to_arrow().to_batches()


# by the name of the type, so that no library has to be imported; `_open_arrow` is for all others
_OPENERS: dict[str, Callable[[Any], tuple[pa.Schema, Batches]]] = {
    "duckdb.DuckDBPyRelation": _open_duckdb,
    "ibis.Table": _open_ibis,
    "lance.LanceDataset": _open_dataset,
    "polars.LazyFrame": _open_lazy,
    "ray.Dataset": _open_ray,
    "ray.MaterializedDataset": _open_ray,
    "pyarrow.Scanner": lambda scanner: _open_arrow(scanner.to_reader()),
    "pyarrow.FileSystemDataset": _open_dataset,
    "pyarrow.InMemoryDataset": _open_dataset,
    "pyarrow.UnionDataset": _open_dataset,
}


def spooled_parts(
    parts: Iterable[tuple[str, Iterable[pa.RecordBatch], tuple[Derived, ...]]], schema: pa.Schema, label: str, bar: Bar
) -> tuple[Unit, ...]:
    """Write the batches of each part to a file on disk, and return them as units.

    A part is its name for messages, its batches, whose columns are in the schema, and the columns that are derived from
    these. Their rows advance the bar. Each batch is written as a stream of its own, because a file would need one
    dictionary for all of them.
    """
    spool, written = Spool(label), []
    for place, batches, derived in parts:
        for batch in _in_equal_pieces(batches, schema, bar):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            written.append((place, batch.num_rows, derived, spool.size))
            spool.append(sink.getvalue())
    whole = spool.mapped()
    pieces = (
        (place, rows, partial(_spooled_batch, whole, offset), derived) for place, rows, derived, offset in written
    )
    return in_order(pieces, label)


def _spooled_batch(whole: pa.Buffer, offset: int, names: Sequence[str]) -> list[pa.RecordBatch]:
    return [pa.ipc.open_stream(whole.slice(offset)).read_next_batch().select(list(names))]


def _in_equal_pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema, bar: Bar) -> Iterator[pa.RecordBatch]:
    """The rows in batches of equal size, with text as codes for the values in each batch."""
    waiting: list[pa.RecordBatch] = []
    count = rows = 0
    for batch in filter(len, batches):
        rows = rows or max(1, min(_ROWS, _BYTES // max(plain(batch.slice(0, 1)).nbytes, 1)))
        for start in range(0, batch.num_rows, rows):
            waiting.append(plain(batch.slice(start, rows)))
            count += waiting[-1].num_rows
            if count >= rows:
                whole = pa.Table.from_batches(waiting)
                yield _encoded(whole.slice(0, rows), schema)
                waiting, count = whole.slice(rows).to_batches(), count - rows
        bar.update(batch.num_rows)
    if count:
        yield _encoded(pa.Table.from_batches(waiting), schema)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries, which differ from batch to batch, and without views."""
    return pa.RecordBatch.from_arrays([*map(decoded, batch.columns)], names=batch.schema.names)


def _encoded(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    fields = [schema.field(name) for name in table.schema.names]
    arrays = [_as_kept(column.combine_chunks(), field) for column, field in zip(table.columns, fields)]
    fields = [field.with_type(array.type) for field, array in zip(fields, arrays)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _as_kept(array: pa.Array, field: pa.Field) -> pa.Array:
    if is_text(array.type):
        return pc.dictionary_encode(array)
    # a producer may hand out times in another unit than it says
    return array.cast(value_type(field.type)) if pa.types.is_temporal(array.type) else array


def kept_type(arrow: pa.DataType) -> pa.DataType:
    """The type of a column in the file."""
    return pa.dictionary(pa.int32(), pa.large_string()) if is_text(arrow) else value_type(arrow)
