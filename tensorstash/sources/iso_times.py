"""Columns of text in ISO 8601, parsed as times while the source is read."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.types import is_text
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.scan import Scan, damage_named
from tensorstash.sources.storage import changed

_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_DATE = 10  # characters


def with_iso_time(scanned: Scan, time: str | None) -> Scan:
    """The same scan, with timestamps where its time column is text whose first value is one."""
    fields = [field for field in scanned.schema if field.name == time]
    if len(fields) != 1 or not is_text(fields[0].type):
        return scanned
    name = fields[0].name
    first = _first(scanned, name)
    if first is None:
        return scanned
    arrow = iso_type([first], "us")
    if arrow is None:
        raise SchemaError(
            f"Times are timestamps, dates, integers, or text in ISO 8601; {first!r} in column {time!r} of "
            f"{scanned.label} is not. {_convert(name)}"
        )
    return as_times(scanned, name, arrow)


def iso_type(texts: Sequence[str], unit: str) -> pa.DataType | None:
    """The Arrow type of texts that are all times in ISO 8601; `None` if some are not."""
    arrow = pa.timestamp(unit, "UTC" if _ZONE.search(texts[0][_DATE:]) else None)
    return None if _parsed(pa.array(texts), arrow) is None else arrow


def as_times(scanned: Scan, name: str, arrow: pa.DataType) -> Scan:
    """The same scan, with a column of text as timestamps of this type."""
    timed = changed(scanned, {name: arrow}, {name: partial(_times, scanned, name, arrow)})
    return replace(timed, notes=(*timed.notes, f"{name!r} is text, and read as {arrow}"))


def _first(scanned: Scan, time: str) -> str | None:
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


def _times(scanned: Scan, time: str, arrow: pa.DataType, array: pa.Array, row: int) -> pa.Array:
    texts = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array.cast(pa.large_string()))
    values = texts.dictionary.cast(pa.large_string())
    parsed = _parsed(values, arrow)
    if parsed is None:
        bad = next(k for k in range(len(values)) if _parsed(values.slice(k, 1), arrow) is None)
        bad_row = row + int(np.argmax(texts.indices.to_numpy(zero_copy_only=False) == bad))
        raise DataError(
            f"Text times must be in ISO 8601, all with a zone or all without; {values[bad].as_py()!r} in column "
            f"{time!r} is not (row {scanned.name_row(bad_row)}, in {scanned.label}). {_convert(time)}"
        )
    return parsed.take(texts.indices)


def _convert(time: str) -> str:
    return f"Convert it, for example with polars: pl.col({time!r}).str.to_datetime('%d.%m.%Y %H:%M')."
