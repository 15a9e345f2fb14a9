"""A time column of text in ISO 8601, parsed while the source is read."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.types import is_text
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.scan import Scan, Unit, damage_named

_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_DATE = 10  # characters


def with_iso_time(scanned: Scan, time: str | None) -> Scan:
    """The same scan, with timestamps where its time column is text whose first value is one."""
    fields = [field for field in scanned.schema if field.name == time]
    if len(fields) != 1 or not is_text(fields[0].type):
        return scanned
    first = _first(scanned, fields[0].name)
    if first is None:
        return scanned
    zone = "UTC" if _ZONE.search(first[_DATE:]) else None
    arrow = pa.timestamp("us", zone)
    if _parsed(pa.array([first]), arrow) is None:
        raise SchemaError(
            f"Times are timestamps, dates, integers, or text in ISO 8601; {first!r} in column {time!r} of "
            f"{scanned.label} is not. {_convert(fields[0].name)}"
        )
    index = scanned.schema.get_field_index(fields[0].name)
    schema = scanned.schema.set(index, fields[0].with_type(arrow))
    units = tuple(replace(unit, read=partial(_read, unit, fields[0].name, arrow)) for unit in scanned.units)
    note = f"{time!r} is text, and read as {arrow}"
    return replace(scanned, schema=schema, units=units, notes=(*scanned.notes, note))


def _first(scanned: Scan, time: str) -> str | None:
    """The first value that is not missing."""
    for unit in scanned.units:
        with damage_named(unit, [time]):
            for batch in unit.read([time]):
                if batch.column(0).null_count < batch.num_rows:
                    return str(batch.column(0).drop_null()[0].as_py())
    return None


def _parsed(texts: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        return None


def _read(unit: Unit, time: str, arrow: pa.DataType, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in unit.read(names):
        if time in names:
            index = list(names).index(time)
            times = _times(batch.column(index), arrow, time, at, unit)
            batch = batch.set_column(index, time, times)  # noqa: PLW2901
        yield batch
        at += batch.num_rows


def _times(array: pa.Array, arrow: pa.DataType, time: str, row: int, unit: Unit) -> pa.Array:
    texts = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array.cast(pa.large_string()))
    values = texts.dictionary.cast(pa.large_string())
    parsed = _parsed(values, arrow)
    if parsed is None:
        bad = next(k for k in range(len(values)) if _parsed(values.slice(k, 1), arrow) is None)
        at = row + int(np.argmax(texts.indices.to_numpy(zero_copy_only=False) == bad))
        raise DataError(
            f"Times of text are written as ISO 8601 has it, all with a zone or all without; {values[bad].as_py()!r} in "
            f"column {time!r} is not (row {unit.name_row(at)}, in {unit.place}). {_convert(time)}"
        )
    return parsed.take(texts.indices)


def _convert(time: str) -> str:
    as_csv = f"of a CSV file say how it is written: schema={{{time!r}: '%d.%m.%Y %H:%M'}}"
    return f"Convert it, for example with polars: pl.col({time!r}).str.to_datetime(...), or {as_csv}."
