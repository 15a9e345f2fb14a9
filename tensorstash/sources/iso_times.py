"""Text columns in ISO 8601, parsed as times while the source is read; months, quarters and weeks as first days."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.arrays import of_texts
from tensorstash.columns.types import is_text
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.read import Derived, Source, read, with_derived
from tensorstash.sources.storage import decoded

_PERIOD = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d)|-?Q(?P<quarter>[1-4])|-?W(?P<week>\d\d))")

# behind a second: the part of a fraction that has no value, which Arrow refuses in a unit that is too coarse for it
_NOTHING = re.compile(r"(?<=:\d\d:\d\d)(?:(\.\d*[1-9])|\.)0+(?!\d)")
_NANOSECONDS = re.compile(r"\.\d{7}")

_DAYS = (
    "%Y-%m-%d|%Y/%m/%d|%Y.%m.%d|%Y%m%d|%d.%m.%Y|%d/%m/%Y|%m/%d/%Y|%d-%m-%Y|%m-%d-%Y|%d.%m.%y|%d/%m/%y|%m/%d/%y"
    "|%d %B %Y|%d-%B-%Y|%B %d %Y|%B %d, %Y"
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S%.f", " %I:%M %p", " %I:%M:%S %p")
_WHOLE = (*map("".join, product(_DAYS.split("|"), _CLOCKS)), "%Y/%m", "%m/%Y", "%B %Y", "%Y")
# what goes before the texts, and formats to try: a day before those that have none
_FORMATS = [*product([""], _WHOLE), *product(["2000-01-01 "], [f"%Y-%m-%d{clock}" for clock in _CLOCKS[1:]])]
_MOST_TRIED = 10_000  # texts
_FIRST_YEAR = 1000  # an earlier one is a year of two digits, or another number


def with_iso_time(source: Source, time: str | None) -> Source:
    """The source with timestamps as its time column, if that is text: its first value must be a time."""
    if (
        time is None
        or (index := source.schema.get_field_index(time)) < 0  # no such column, or several
        or not is_text(source.schema.field(index).type)
    ):
        return source
    batches = (batch.column(0).drop_null() for unit in source.units for _, batch in read(unit, [time]))
    texts = next((texts for texts in batches if len(texts)), None)
    if texts is None:
        raise SchemaError(
            f"Text is read as times by its first value; {time!r} of {source.label} has none: there are no rows, or "
            f"filter= keeps none of them. Convert it, with polars: "
            f"frame.with_columns(pl.col({time!r}).str.to_datetime())."
        )
    first = decoded(texts[:1])
    units = ("ns", "us") if _NANOSECONDS.search(first[0].as_py()) else ("us",)
    kinds = [pa.timestamp(unit, zone) for unit in units for zone in (None, "UTC")]
    arrow = next((kind for kind in kinds if _parsed(first, kind) is not None), None)
    if arrow is None:
        raise SchemaError(
            f"Times are timestamps, dates, integers, or text in ISO 8601; {first[0].as_py()!r} in column {time!r} of "
            f"{source.label} is not. {_convert(time, texts, source.label) or 'Convert it, or name another column.'}"
        )
    column = Derived(pa.field(time, arrow), (time,), partial(_times, source.label, time, arrow))
    note = f"{time!r} is text, and read as {arrow}"
    return replace(with_derived(source, [column]), notes=(*source.notes, note))


def _parsed(texts: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    with suppress(pa.ArrowInvalid):
        return texts.cast(arrow)
    with suppress(pa.ArrowInvalid):
        return of_texts([_first_day(without_zeros(text)) for text in texts.to_pylist()]).cast(arrow)
    return None


def without_zeros(text: str) -> str:
    """The text of a time without zeros at the end of its fraction; any other text as it is."""
    return _NOTHING.sub(r"\1", text)


def _first_day(text: str) -> str:
    """The day at which a month, a quarter or a week begins; any other text as it is."""
    found = _PERIOD.fullmatch(text)
    with suppress(ValueError):  # no month 13, no week 53
        if found is not None and found["week"]:
            return date.fromisocalendar(int(found["year"]), int(found["week"]), 1).isoformat()
        if found is not None:
            return date(int(found["year"]), int(found["month"] or 3 * int(found["quarter"]) - 2), 1).isoformat()
    return text


def _times(
    label: str, name: str, arrow: pa.DataType, arrays: Sequence[pa.Array], _place: str, name_row: Callable[[int], str]
) -> pa.Array:
    (array,) = arrays
    texts = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array.cast(pa.large_string()))
    values = texts.dictionary.cast(pa.large_string())
    parsed = _parsed(values, arrow)
    if parsed is None:
        bad = next(k for k in range(len(values)) if _parsed(values.slice(k, 1), arrow) is None)
        bad_row = int(np.argmax(texts.indices.to_numpy(zero_copy_only=False) == bad))
        others = (pa.timestamp(unit, arrow.tz) for unit in ("us", "ns"))
        has_other_unit = any(_parsed(values.slice(bad, 1), other) is not None for other in others)
        in_units = "all with nanoseconds, from 1677 to 2262, or all without"
        raise DataError(
            f"Text times must be in ISO 8601, {in_units if has_other_unit else 'all with a zone or all without'}; "
            f"{values[bad].as_py()!r} in column {name!r} is not (row {name_row(bad_row)}, in {label}). "
            f"{_convert(name, array, label) or 'Write all of them alike.'}"
        )
    return parsed.take(texts.indices)


def _convert(name: str, texts: pa.Array, label: str) -> str | None:
    """The line of polars, or pandas for its frames, that reads a column with these texts; `None` if no format does.

    Nor if any text has nanoseconds, which these formats would cut off.
    """
    import polars as pl

    known = pl.Series(pc.unique(decoded(texts).drop_null())[:_MOST_TRIED], dtype=pl.String)
    found = []
    for before, form in _FORMATS:
        method = "to_datetime" if ":" in form else "to_date"
        with suppress(pl.exceptions.PolarsError):
            getattr((before + known[:1]).str, method)(form)  # most formats do not read the first text
            times = getattr((before + known).str, method)(form)
            if times.dt.year().min() >= _FIRST_YEAR:
                found.append((before, f".str.{method}({form!r})", form, times))
    if not found or known.str.contains(_NANOSECONDS.pattern).any():
        return None
    before, how, form, first = found[0]
    others = "".join([f" ({other!r} reads them too)" for *_, other, times in found if not times.equals(first)][:1])
    if label.startswith("the pandas "):
        month = "%B" if re.search(r"[A-Za-z]{4}", " ".join(known)) else "%b"  # pandas reads names of one length
        column, form = f"frame[{name!r}]", form.replace("%S%.f", "%S.%f").replace("%B", month)
        given = f"{before!r} + {column}" if before else column
        return f"Convert it, with pandas: {column} = pd.to_datetime({given}, format={form!r}){others}."
    is_categorical = pa.types.is_dictionary(texts.type) and label == "the polars frame"  # files have codes of any text
    column = f"pl.col({name!r}){'.cast(pl.String)' if is_categorical else ''}"
    how = f"pl.format({before + '{}'!r}, {column}){how}.alias({name!r})" if before else f"{column}{how}"
    return f"Convert it, with polars: frame.with_columns({how}){others}."
