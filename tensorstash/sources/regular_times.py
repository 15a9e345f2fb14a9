"""The times of series that say when they start and how long a step is."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.types import is_text
from tensorstash.common.clock import Clock, wall_clock
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.frequency import Frequency, frequency, from_alias
from tensorstash.errors import DataError, SchemaError

Refuse = Callable[[int, str], DataError]  # the index of a series, and what is wrong with it -> the error
_DAYS = {"months": 31, "days": 1, "business days": 2}  # at most, in one step


def time_type(start: pa.Field) -> pa.DataType:
    """The type of the times of series whose starts are this field."""
    arrow = start.type.value_type if pa.types.is_dictionary(start.type) else start.type
    if pa.types.is_timestamp(arrow):
        return arrow
    if pa.types.is_date(arrow):
        return pa.date32()
    if pa.types.is_integer(arrow):
        return pa.int64()
    raise SchemaError(
        f"start= names a timestamp, date or integer column, or one of text in ISO 8601; {start.name!r} is "
        f"{start.type}. Convert it before loading."
    )


def clock_of(arrow: pa.DataType) -> Clock:
    """How times of this type are read."""
    if pa.types.is_timestamp(arrow):
        return Clock(arrow.unit, arrow.tz)
    return Clock("d" if pa.types.is_date(arrow) else None, None)


def check_step_column(field: pa.Field) -> None:
    """Refuse a column that cannot hold steps."""
    arrow = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if not is_text(arrow) and not pa.types.is_integer(arrow):
        raise SchemaError(
            f"every= is a duration such as '1h', or names a text or integer column; {field.name!r} is {field.type}. "
            "Write the duration."
        )


def regular_times(starts: pa.Array, steps: Frequency | pa.Array, lengths: Int64s, refuse: Refuse) -> pa.Array:
    """The times of some series, one series behind the other, `(sum(lengths),)`, in the type that `starts` have.

    `steps` is the frequency of all, or holds the step of each, all `(n,)`.
    """
    arrow, clock = starts.type, clock_of(starts.type)
    ticks = _known(starts, lengths, refuse, "has no start").view(_integers(arrow)).to_numpy().astype(np.int64)
    begins = np.repeat(ticks, lengths)
    passed = np.arange(len(begins)) - np.repeat(np.cumsum(lengths) - lengths, lengths)

    def later(step: Frequency, items: "Int64s | slice") -> Int64s:
        def wrong(at: int, why: str) -> DataError:
            item = np.arange(len(begins))[items][at]
            return refuse(int(np.searchsorted(np.cumsum(lengths), item, "right")), why)

        return _later(step, begins[items], passed[items], wrong)

    if isinstance(steps, Frequency):
        times = later(steps, slice(None))
    else:
        coded = pc.dictionary_encode(_known(steps, lengths, refuse, "has no step"))
        codes, times = coded.indices.to_numpy(), np.empty_like(begins)
        each = np.repeat(codes, lengths)
        for code, text in enumerate(coded.dictionary.to_pylist()):
            items = np.flatnonzero(each == code)
            try:
                step = frequency(from_alias(text) if isinstance(text, str) else text, clock, None, "every")
            except ValueError as error:
                why = f"has the step {text!r}, and {str(error).rstrip('.')}"
                raise refuse(int(np.argmax(codes == code)), why) from error
            times[items] = later(step, items)
    return pa.array(times.astype(np.int32) if pa.types.is_date(arrow) else times).view(arrow)


def _known(array: pa.Array, lengths: Int64s, refuse: Refuse, what: str) -> pa.Array:
    """The same values, with some other one for the nulls of series without items."""
    if not array.null_count:
        return array
    missing = array.is_null().to_numpy(zero_copy_only=False) & (lengths > 0)
    if missing.any():
        raise refuse(int(np.argmax(missing)), what)
    return pc.fill_null(array, array.drop_null()[0])


def _integers(arrow: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(arrow) else pa.int64()


def _later(step: Frequency, begins: Int64s, passed: Int64s, refuse: Refuse) -> Int64s:
    """The times so many steps later, `(n,)`; refused where int64 or the calendar has no such time."""
    if not len(begins):
        return begins
    if step.kind == "business days" and not (working := _are_working(begins, step.clock)).all():
        raise refuse(int(np.argmin(working)), "starts on a day that is no business day")
    ticks = step.count * (1 if step.kind == "ticks" else _DAYS[step.kind] * step.clock.day)
    beyond = np.abs(begins.astype(np.float64) + passed * float(ticks)) >= 2.0**63
    if beyond.any():
        raise refuse(int(np.argmax(beyond)), f"has times that int64 cannot count in {step.clock.unit or 'ticks'!r}")
    return np.where(passed == 0, begins, step.advance(begins, passed))


def _are_working(times: Int64s, clock: Clock) -> Bools:
    return np.is_busday((wall_clock(times, clock) // clock.day).astype("datetime64[D]"))
