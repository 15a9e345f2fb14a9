"""Sources of tables, frames and arrays in memory: from pyarrow, polars, pandas, Hugging Face, numpy and torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tensorstash.columns.arrays import numbers, of_numbers
from tensorstash.columns.names import check_for_polars, check_unicode, field_of
from tensorstash.columns.types import BFLOAT16
from tensorstash.common.dtypes import from_bfloat16
from tensorstash.common.text import cut, type_text
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.read import BATCH_ROWS, Derived, Source, Wanted, in_order, with_derived
from tensorstash.sources.storage import without_null_views

_LONGEST = 160  # characters of an error of Arrow
_SMALL_ROWS = 4096  # chunks of fewer rows on the average are combined
_OBJECTS = ("object", "a list", "a tuple")  # types of values that need not be of one type
_UNCONVERTED = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError, AttributeError)
# how frames of one series each, by whether they are of pandas, become one frame
_SERIES = {
    True: "load pd.concat(frames, names=['series'])",
    False: "load pl.concat([frame.with_columns(series=pl.lit(name)) for name, frame in frames.items()])",
}
# remedies by the beginning of the type's name, in numpy, polars and pandas
_CONVERSIONS = {
    "object": "Convert it: pandas.to_numeric({whole}[{name!r}], errors='coerce'), or {whole}[{name!r}].astype(str)",
    "complex": "Load its parts: numpy.real({whole}[{name!r}]) and numpy.imag({whole}[{name!r}])",
    "Sparse": "Convert it: {whole}[{name!r}].sparse.to_dense()",
    "Int128": "Convert it: pl.col({name!r}).cast(pl.Int64)",
    "UInt128": "Convert it: pl.col({name!r}).cast(pl.UInt64)",
}


def open_arrow(table: Any, wanted: Wanted) -> Source:  # noqa: ARG001  unread columns cost nothing
    """Slices of a pyarrow table or record batch."""
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return open_table(whole, whole.schema, f"the pyarrow {type(table).__name__}")


def open_polars(frame: Any, wanted: Wanted) -> Source:
    """The wanted columns of a polars frame, converted to Arrow, with texts as views, which are no copies."""
    import polars as pl

    types = frame.schema  # a copy
    names = wanted.among(types)
    check_for_polars(names)
    convert = lambda columns: frame[:, columns].to_arrow(compat_level=pl.CompatLevel.newest())  # noqa: E731
    table = _converted(convert, frame, names, types, "the polars frame")
    return _open_wanted(table, types, types, "the polars frame")


def open_pandas(frame: Any, wanted: Wanted) -> Source:
    """The wanted columns and levels of the index of a pandas frame, converted to Arrow.

    Levels without a name are left out, but those of times have the names that they have in files.
    """
    index = frame.index
    levels = [name for name in index.names if name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = _checked_names(frame.columns, "the pandas frame")
    untyped = pa.schema([(name, pa.null()) for name in names])
    for name in wanted.among(names):
        field_of(untyped, name, "the pandas frame")  # refuses a name of several columns
    convert = lambda columns: pa.Table.from_pandas(frame[columns], preserve_index=False)  # noqa: E731
    table, types = _converted(convert, frame, wanted.among(names), frame.dtypes, "the pandas frame"), [*frame.dtypes]
    for k in [k for k, name in enumerate(index.names) if name is None]:
        name, dtype = f"__index_level_{k}__", index.dtype if index.nlevels == 1 else index.levels[k].dtype
        if _is_time(dtype) and name not in names:
            names, types = [*names, name], [*types, dtype]
            for asked in wanted.among([name]):
                table = table.append_column(asked, pa.array(index.get_level_values(k)))
    return _open_wanted(table, names, dict(zip(names, types)), "the pandas frame")


def _converted(
    convert: Callable[[list[str]], pa.Table], source: Any, names: list[str], types: Any, where: str
) -> pa.Table:
    """The columns as a table. The error names the first column that cannot be converted."""
    if objects := [name for name in names if str(types[name]) == "Object"]:  # polars exports them as their addresses
        raise SchemaError(
            f"Columns must be of one type; {objects[0]!r} in {where} holds Python objects. Convert it first."
        )
    try:
        table = convert(names)
    except _UNCONVERTED as error:
        if len(names) > 1:
            for name in names:
                _converted(convert, source, [name], types, where)
            raise
        kind, whole = str(types[names[0]]), where.rpartition(" ")[2]
        remedies = [remedy for prefix, remedy in _CONVERSIONS.items() if kind.startswith(prefix)]
        large = ["For integers below 2**64 write np.array(..., np.uint64)"] * isinstance(error, OverflowError)
        remedy = [*remedies, *large, "Convert it before loading"][0].format(name=names[0], whole=whole)
        raise SchemaError(
            f"The values of a column must have one type of Arrow; column {names[0]!r} of {where} is {kind}, which "
            f"cannot be converted: {_brief(error)}. {remedy}."
        ) from error
    for name in (name for name in names if str(types[name]) in _OBJECTS):
        if (rule := _broken_rule(source[name], table.schema.field(name).type)) is not None:
            raise SchemaError(rule.format(f"those of {name!r} in {where}"))
    return table


def _broken_rule(values: Iterable[object], arrow: pa.DataType) -> str | None:
    """Why Arrow has made other values of Python objects; `None` if it has not."""
    if pa.types.is_integer(arrow) or pa.types.is_floating(arrow):
        is_mixed = not {bool, np.bool_}.isdisjoint(map(type, values))
        how = "Convert it first, with None where a value is missing."
        return f"A column holds numbers, or true and false; {{}} are mixed. {how}" if is_mixed else None
    if pa.types.is_temporal(arrow) and _are_mixed(values):
        rule = "The times of a column are all dates, all times with a zone or all without"
        return f"{rule}; {{}} are mixed. Convert it first."
    is_coarse = getattr(arrow, "unit", "ns") != "ns"
    # of NaT it is NaN
    if is_coarse and any(getattr(v, "nanosecond", getattr(v, "nanoseconds", 0)) > 0 for v in values):
        how = "Convert it first, with pandas.to_datetime or pandas.to_timedelta."
        return f"Of times and durations that are Python objects Arrow keeps microseconds; {{}} have nanoseconds. {how}"
    return None


def _are_mixed(values: Iterable[object]) -> bool:
    """Whether Arrow would make dates of times, or moments of local times, as the first of the values is one."""
    times = (value for value in values if isinstance(value, date) and value == value)  # noqa: PLR0124  NaT is a date
    return len({(isinstance(time, datetime), getattr(time, "tzinfo", None) is None) for time in times}) > 1


def open_dataset(source: Any, wanted: Wanted) -> Source:  # noqa: ARG001  unread columns cost nothing
    """Slices of the Arrow table of a Hugging Face data set, in the order set by `shuffle` or `select`."""

    def read(start: int, rows: int, names: Sequence[str]) -> list[pa.RecordBatch]:
        view = source.select_columns(list(names)).with_format("arrow")
        return _selected(view[start : start + rows].to_batches(), names)

    return _sliced("the Hugging Face Dataset", source.features.arrow_schema, len(source), read)


def open_table(table: pa.Table, schema: pa.Schema, label: str) -> Source:
    """Slices of a table; `schema` may have further columns, which are never read."""
    are_small = table.num_columns > 0 and table[0].num_chunks > 1 + table.num_rows // _SMALL_ROWS
    return _sliced(label, schema, table.num_rows, partial(_combined if are_small else _batches, table))


def _sliced(label: str, schema: pa.Schema, count: int, read: Callable[[int, int, Sequence[str]], Any]) -> Source:
    """Slices of so many rows; `read` takes the first row and the number of rows of a slice, and names of columns."""
    slices = ((start, min(BATCH_ROWS, count - start)) for start in range(0, count, BATCH_ROWS))
    units = in_order(((label, rows, partial(read, start, rows), ()) for start, rows in slices), label)
    return Source(label, schema, units, len(units))


def _batches(table: pa.Table, start: int, rows: int, names: Sequence[str]) -> list[pa.RecordBatch]:
    return _selected(table.select(list(names)).slice(start, rows).to_batches(), names)


def _combined(table: pa.Table, start: int, rows: int, names: Sequence[str]) -> list[pa.RecordBatch]:
    """The rows of small chunks, each of which would be read on its own.

    One column at a time: what Arrow keeps of a small chunk takes more memory than its values.
    """
    columns = [table.select([name]).slice(start, rows).combine_chunks()[0] for name in names]
    return _selected(pa.Table.from_arrays(columns, names=list(names)).to_batches(), names)


def _selected(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> list[pa.RecordBatch]:
    return [without_null_views(batch.select(list(names))) for batch in batches]


def _open_wanted(table: pa.Table, names: Iterable[str], types: Mapping[str, Any], label: str) -> Source:
    """Slices of a table; other `names` are columns that were not wanted and not converted, with the null type.

    By their `types` in the library that holds them, some of those are times, and have a type of times.
    """
    known = set(table.column_names)
    fields = (
        table.schema.field(name)
        if name in known
        else pa.field(name, pa.timestamp("us") if _is_time(types[name]) else pa.null())
        for name in names
    )
    return open_table(table, pa.schema(fields), label)


def _is_time(dtype: object) -> bool:
    """Whether a type of polars, pandas or numpy is of timestamps, dates or periods."""
    return str(dtype).startswith(("Date", "datetime64", "timestamp", "date32", "date64", "period"))


def _checked_names(names: Iterable[Any], where: str) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"Column names must be text; {where} has the {type(name).__name__} {name!r}. Rename it.")
    check_unicode(names, where)
    return [*names]


def open_arrays(source: Mapping[Any, Any], wanted: Wanted) -> Source:
    """The wanted arrays of a mapping, converted to Arrow."""
    names, tables = _checked_names(source, "the mapping"), dict[str, pa.Table]()
    if len(names) > 1 and all(hasattr(values, "columns") for values in source.values()):
        raise SchemaError(
            f"A mapping is a source if it holds a column under each name; {names[0]!r} is "
            f"{type_text(source[names[0]])}. If each frame is a series, "
            f"{_SERIES[hasattr(source[names[0]], 'iloc')]} with entity='series'."
        )
    types = {name: getattr(source[name], "dtype", type_text(source[name])) for name in names}
    for name in wanted.among(names):
        values, is_frame = source[name], hasattr(source[name], "columns")
        if is_frame or isinstance(values, (str, bytes, bytearray, Set, Mapping)):
            how, what = ("Take a column of it", "frame['name']") if is_frame else ("Write a list", "[...]")
            raise SchemaError(
                f"A column must be an array or a list of values, in the order of the rows; {name!r} is "
                f"{type_text(values)}. {how}: {{{name!r}: {what}}}."
            )
        tables[name] = _converted(partial(_column_of, source), source, [name], types, "the mapping")
    lengths = {name: table.num_rows for name, table in tables.items()}
    if len(set(lengths.values())) > 1:
        first, *_ = lengths
        other = next(name for name in lengths if lengths[name] != lengths[first])
        raise SourceError(
            f"All arrays of a source must have one length; {first!r} has {lengths[first]:,} values and {other!r} "
            f"{lengths[other]:,}. Cut or complete one."
        )
    schema = pa.schema([table.schema.field(0) for table in tables.values()])
    whole = pa.Table.from_arrays([table[0] for table in tables.values()], schema=schema)
    opened = _open_wanted(whole, names, types, "the mapping")
    return with_derived(opened, [_values_of_bits(field) for field in schema if field.metadata])


def _values_of_bits(field: pa.Field) -> Derived:
    """The values of a tensor of bfloat16, which Arrow has as integers, in float32."""
    arrow = _from_bits(pa.nulls(0, field.type)).type
    return Derived(field.with_type(arrow), (field.name,), lambda arrays, *_: _from_bits(arrays[0]))


def _from_bits(bits: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_list(bits.type):
        return pa.FixedSizeListArray.from_arrays(_from_bits(bits.flatten()), bits.type.list_size)
    return of_numbers(from_bfloat16(numbers(bits)))


def _column_of(source: Mapping[Any, Any], names: list[str]) -> pa.Table:
    """The column of one name as a table."""
    (name,) = names
    array, metadata = _arrow_of(source[name])
    return pa.table([array], schema=pa.schema([pa.field(name, array.type, metadata=metadata)]))


def _brief(error: Exception) -> str:
    """What an error of Arrow says; it may hold whole arrays."""
    return cut(" ".join(str(error.args[0] if error.args else error).split()).rstrip("."), _LONGEST)


def _arrow_of(values: Any) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """An array or tensor as Arrow; trailing dimensions become fixed-size lists."""
    metadata = None
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values, metadata = values.view(torch.uint16), BFLOAT16
        values = values.numpy()
    if hasattr(values, "to_arrow"):  # a Series of polars, whose values pyarrow would take one by one
        return values.to_arrow(), metadata
    if not isinstance(values, np.ndarray):
        return _of_objects(values), metadata
    mask = np.ma.getmaskarray(values).reshape(-1) if isinstance(values, np.ma.MaskedArray) else None
    plain = np.ascontiguousarray(np.ma.getdata(values)).reshape(-1)
    plain = plain.astype(plain.dtype.newbyteorder("="), copy=False)
    is_number = plain.dtype.kind in "biuf" and mask is None
    array = of_numbers(plain) if is_number else pa.array(_in_arrows_unit(plain), mask=mask)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, metadata


def _of_objects(values: Any) -> pa.Array:
    """A list or any other sequence as Arrow; times of pandas keep their nanoseconds, which Arrow would cut off."""
    array = pa.array(values)
    if not isinstance(values, (list, tuple)) or not pa.types.is_temporal(array.type):
        return array
    if any(getattr(value, "nanosecond", 0) for value in values):
        return pa.array(values, pa.timestamp("ns", array.type.tz))
    return pa.array(values, pa.duration("ns")) if any(getattr(value, "nanoseconds", 0) for value in values) else array


def _in_arrows_unit(times: NDArray[Any]) -> NDArray[Any]:
    """Times in a unit that Arrow has: years to weeks become days, hours and minutes become seconds."""
    if times.dtype.kind not in "mM" or not times.dtype.str.endswith("]"):
        return times
    unit, _ = np.datetime_data(times.dtype)
    if unit not in ("ns", "us", "ms", "s"):
        unit = "D" if times.dtype.kind == "M" and unit in ("Y", "M", "W", "D") else "s"
    converted = times.astype(f"{times.dtype.kind}8[{unit}]", copy=False)
    if converted is not times and (converted.astype(times.dtype).view(np.int64) != times.view(np.int64)).any():
        raise ValueError(f"its times do not fit into {converted.dtype}")
    return converted
