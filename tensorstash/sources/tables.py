"""Tables and frames in memory as scans: of pyarrow, polars, pandas and Hugging Face."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tensorstash.errors import SchemaError
from tensorstash.sources.scan import BATCH_ROWS, Read, Scan, Unit, Wanted
from tensorstash.sources.views import without_null_views

_UNCONVERTED = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
# remedies by the beginning of the type's name, in polars and pandas
_CONVERSIONS = {
    "object": "Convert it: pandas.to_numeric(frame[{name!r}], errors='coerce'), or frame[{name!r}].astype(str)",
    "complex": "Load its parts: numpy.real(frame[{name!r}]) and numpy.imag(frame[{name!r}])",
    "Sparse": "Convert it: frame[{name!r}].sparse.to_dense()",
    "Int128": "Convert it: pl.col({name!r}).cast(pl.Int64)",
    "UInt128": "Convert it: pl.col({name!r}).cast(pl.UInt64)",
}


def scan_arrow(table: Any, wanted: Wanted) -> Scan:  # noqa: ARG001  unread columns cost nothing
    """Slices of a pyarrow table or record batch."""
    label = f"the pyarrow {type(table).__name__}"
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return scan_table(whole, whole.schema, label)


def scan_polars(frame: Any, wanted: Wanted) -> Scan:
    """The columns of a polars frame that are wanted, converted to Arrow."""
    names = wanted.among(frame.columns)
    kept = _converted(lambda some: frame.select(some).to_arrow(), names, frame.schema, "the polars frame")
    return scan_table(kept, with_unwanted(kept, frame.columns), "the polars frame")


def scan_pandas(frame: Any, wanted: Wanted) -> Scan:
    """The wanted columns and named levels of the index of a pandas frame, converted to Arrow."""
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = checked_names(frame.columns, "the pandas frame")
    twice = {name for name in wanted.among(names) if names.count(name) > 1}
    if twice:
        raise SchemaError(f"Column names must be unique; the pandas frame has {sorted(twice)} twice. Rename them.")
    convert = lambda some: pa.Table.from_pandas(frame[some], preserve_index=False)  # noqa: E731
    table = _converted(convert, wanted.among(names), frame.dtypes, "the pandas frame")
    return scan_table(table, with_unwanted(table, names), "the pandas frame")


def _converted(convert: Callable[[list[str]], pa.Table], names: list[str], types: Any, where: str) -> pa.Table:
    """Columns of a frame as a table; the first that Arrow cannot hold is refused."""
    try:
        return convert(names)
    except _UNCONVERTED:
        for name in names:
            _check_convertible(convert, name, str(types[name]), where)
        raise


def _check_convertible(convert: Callable[[list[str]], pa.Table], name: str, kind: str, where: str) -> None:
    try:
        convert([name])
    except _UNCONVERTED as error:
        remedies = (remedy for begin, remedy in _CONVERSIONS.items() if kind.startswith(begin))
        remedy = next(remedies, "Convert it before loading")
        why = " ".join(str(error.args[0] if error.args else error).split()).rstrip(".")
        raise SchemaError(
            f"A column has values of one type that Arrow can hold; column {name!r} of {where} is {kind}, and Arrow "
            f"cannot: {why}. {remedy.format(name=name)}."
        ) from error


def scan_dataset(source: Any, wanted: Wanted) -> Scan:  # noqa: ARG001  unread columns cost nothing
    """Slices of the Arrow table of a Hugging Face data set, in the order set by `shuffle` or `select`."""

    def read(start: int, rows: int, names: Sequence[str]) -> list[pa.RecordBatch]:
        view = source.select_columns(list(names)).with_format("arrow")
        batches = view[start : start + rows].select(list(names)).to_batches()
        return [without_null_views(batch) for batch in batches]

    label, count = "the Hugging Face Dataset", len(source)
    starts = range(0, count, BATCH_ROWS)
    lengths = [min(BATCH_ROWS, count - start) for start in starts]
    units = tuple(Unit(label, start, rows, partial(read, start, rows), start) for start, rows in zip(starts, lengths))
    return Scan(label, source.features.arrow_schema, units, len(units))


def scan_table(table: pa.Table, schema: pa.Schema, label: str) -> Scan:
    """Slices of a table; `schema` may have further columns, which are not in the table and never read."""
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    units = (Unit(label, start, batch.num_rows, _selector(batch), start) for batch, start in zip(batches, starts))
    return Scan(label, schema, tuple(units), len(batches))


def _selector(batch: pa.RecordBatch) -> Read:
    return lambda names: [without_null_views(batch.select(list(names)))]


def with_unwanted(table: pa.Table, names: Iterable[str]) -> pa.Schema:
    """The schema of a table, with the null type for the columns that were not wanted and so not converted."""
    known = set(table.column_names)
    return pa.schema(table.schema.field(name) if name in known else pa.field(name, pa.null()) for name in names)


def checked_names(names: Iterable[Any], where: str) -> list[str]:
    """The column names; a name that is no string is refused."""
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"Column names are strings; {where} has the {type(name).__name__} {name!r}. Rename it.")
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise SchemaError(f"Column names are valid Unicode; {where} has {name!r}, half a character. Rename it.")
    return [*names]
