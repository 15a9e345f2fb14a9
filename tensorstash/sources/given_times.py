"""Times that callers give beside a source, in the unit of its times: the calendar of `frequency=`, those of `at=`."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.arrays import integers
from tensorstash.columns.types import value_type
from tensorstash.common.calendar import Calendar
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.derive import with_plain_types
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.read import Wanted, read_whole
from tensorstash.sources.source import open_source

_NAME = "frequency="


def times_of(given: Any) -> pa.ChunkedArray:
    """The times of a calendar in their own type; texts and periods are the times at which they begin."""
    source = pa.table({_NAME: given}) if isinstance(given, (pa.Array, pa.ChunkedArray)) else {_NAME: given}
    opened = open_source(source, None, Wanted(None), None, progress=False)
    if not opened.rows:
        raise ValueError(f"A calendar has at least one time, and {_NAME} is empty. Give all times that exist.")
    times = with_iso_time(with_plain_types(opened), _NAME)
    return read_whole(times, [_NAME])[_NAME].cast(value_type(times.schema.field(_NAME).type))


def calendar_of(times: pa.ChunkedArray, clock: Clock) -> Calendar:
    """The calendar of times that `times_of` returned, in the unit of a clock."""
    # of times of another type the order is told first
    falls = pc.less_equal(times[1:], times[:-1]) if pa.types.is_primitive(times.type) else pa.array([False])
    if pc.any(falls).as_py():
        at = pc.index(falls, pa.scalar(True)).as_py()
        raise ValueError(
            f"A calendar ascends, and in {_NAME} the time in place {at + 1:,}, counted from 0, is not after the one "
            "before it. Sort the times, each once: np.unique(times)."
        )
    return Calendar(ticks_of(times, clock, None), clock)


def ticks_of(times: pa.ChunkedArray, clock: Clock, column: str | None) -> Int64s:
    """Times of the kind of a clock as its ticks: those of a column of the frame of `at=`, or of a calendar."""
    kind = times.type
    argument, what = (_NAME, "the calendar") if column is None else ("at=", f"column {column!r}")
    if clock.unit is None:
        target, wanted, fits = pa.int64(), "an integer", pa.types.is_integer(kind)
    elif clock.unit == "d":
        target, wanted, fits = pa.date32(), "a date", pa.types.is_date(kind)
    else:
        zone, is_date = getattr(kind, "tz", None), pa.types.is_date(kind)
        target = pa.timestamp(clock.unit, zone)
        wanted = f"a timestamp with the zone {clock.zone}" if clock.zone else "a timestamp without a zone"
        fits = zone is not None if clock.zone else is_date or (pa.types.is_timestamp(kind) and zone is None)
    if not fits:
        raise SchemaError(
            f"The times of {argument} must be {wanted}, as in the stash; {what} is {kind}. Convert it"
            f"{_conversion(kind, clock, column)}.{clock.hint}"
        )
    if times.null_count:
        row = int(np.argmax(times.is_null().to_numpy()))
        raise DataError(
            f"The times of {argument} must not be missing; {what} is null in row {row:,}. Leave such rows out."
        )
    try:
        return integers(times.cast(target))
    except pa.ArrowInvalid as error:
        whole = "integers below 2**63" if clock.unit is None else f"whole ticks, in {clock.unit!r}"
        raise DataError(
            f"The times of {argument} must be {whole}, as in the stash; {what} is {kind}, and one is not. Leave such "
            "rows out, or round them yourself, such as with dt.truncate."
        ) from error


def _conversion(kind: pa.DataType, clock: Clock, column: str | None) -> str:
    """How polars converts timestamps to the times of a clock."""
    if clock.unit is None or not pa.types.is_timestamp(kind):
        return ""
    how = ".dt.date()" if clock.unit == "d" else f".dt.replace_time_zone({clock.zone!r})"
    if column is not None:
        return f", with polars: frame.with_columns(pl.col({column!r}){how})"
    times = "times" if kind.tz else "np.array(times, 'M8[us]')"  # numpy reads texts too
    return f", with polars: pl.Series({times}){how}"
