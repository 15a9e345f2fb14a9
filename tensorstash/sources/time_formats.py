"""How polars reads texts as times that are not in ISO 8601: by a format that has read these texts."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.common.clock import epoch_unit

if TYPE_CHECKING:
    import polars as pl

_DAYS = "%Y-%m-%d|%Y/%m/%d|%Y.%m.%d|%Y%m%d|%d.%m.%Y|%d/%m/%Y|%m/%d/%Y|%d-%m-%Y|%m-%d-%Y|%d.%m.%y|%d/%m/%y|%m/%d/%y"
_DAYS += "|%d %B %Y|%d-%B-%Y|%d-%B-%y|%B %d %Y|%B %d, %Y|%a, %d %B %Y|%a %B %d %Y"
_MONTHS = "%Y/%m|%m/%Y|%m.%Y|%B %Y|%B-%Y|%Y%m|%Y"
_CLOCKS = "%H:%M|%H:%M:%S|%H:%M:%S%.f|%I:%M %p|%I:%M:%S %p|%H.%M|%H%M|%H%M%S"
_ZONES = "|%z| UTC| GMT"
_MOST_TRIED = 10_000  # texts
_FIRST_YEAR = 1000  # an earlier one is a year of two digits, or another number


def reading(name: str, values: pa.Array | pa.ChunkedArray) -> tuple[str, str] | None:
    """The expression of polars that reads a column of these texts, and what else does; `None` if none does."""
    texts = pc.unique(values.cast(pa.large_string()).drop_null())[:_MOST_TRIED].to_pylist()
    if not texts:
        return None
    column = f"pl.col({name!r})"
    if all(text.isdecimal() for text in texts) and (unit := epoch_unit(min(map(int, texts)), max(map(int, texts)))):
        return f"pl.from_epoch({column}.cast(pl.Int64), {unit!r})", ""
    for before, after, formats in _candidates():
        padded = [f"{before}{text}{after}" for text in texts]
        if found := [(form, times) for form in formats if (times := _parsed(form, padded)) is not None]:
            form, times = found[0]
            others = [f" ({other!r} reads them too)" for other, also in found if not also.equals(times)]
            how = f"pl.format({f'{before}{{}}{after}'!r}, {column})" if before or after else column
            alias = f".alias({name!r})" if how != column else ""
            return f"{how}.str.{_method(form)}({form!r}){alias}", "".join(others[:1])
    return None


def _candidates() -> Iterator[tuple[str, str, list[str]]]:
    """What goes before and after the texts, and formats to try; a day is put before those that have none."""
    days, clocks = _DAYS.split("|"), _CLOCKS.split("|")
    yield "", "", days
    yield "", "", ["".join(parts) for parts in product(days, " T", clocks, _ZONES.split("|"))]
    yield "", "", _MONTHS.split("|")
    yield "1 ", "", ["%d %B-%y", "%d %B %y"]
    yield "2000-01-01 ", "", [f"%Y-%m-%d {clock}" for clock in clocks]


def _method(form: str) -> str:
    return "to_datetime" if "%H" in form or "%I" in form else "to_date"


def _parsed(form: str, texts: Sequence[str]) -> "pl.Series | None":
    import polars as pl

    times: Any = None
    with suppress(pl.exceptions.PolarsError):
        for some in (texts[:1], texts):  # most formats do not read the first text
            times = getattr(pl.Series(some, dtype=pl.String).str, _method(form))(form)
            if times.null_count() or times.dt.year().min() < _FIRST_YEAR:
                return None
        return times
    return None
