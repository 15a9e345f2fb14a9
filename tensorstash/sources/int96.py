"""Times in INT96, an old type of Parquet: their range is wider than that of nanoseconds in 64 bits."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.errors import DataError
from tensorstash.sources.read import BATCH_ROWS, Unit, read

_NANOSECONDS, _MICROSECONDS = 10**9, 10**6  # in a second


def outside_nanoseconds(fragment: pads.ParquetFileFragment, group: int, place: str, names: Sequence[str]) -> set[str]:
    """Which columns of a row group have times that nanoseconds do not hold."""
    rows, found = fragment.metadata.row_group(group).num_rows, set[str]()
    unit = Unit(place, 0, rows, partial(_seconds, fragment, group), 0)
    for _, batch in read(unit, names):
        for name, array in zip(names, batch.columns):
            for times in _in_seconds(array):
                low, high = (bound.as_py() or 0 for bound in pc.min_max(times.cast(pa.int64())).values())
                if not _fits(low, high, _MICROSECONDS):
                    raise DataError(
                        f"A time in INT96 fits into microseconds, within 292,000 years of 1970; column {name!r} of "
                        f"{unit.place} has others. Leave the column out, or correct such times where they are written."
                    )
                found |= set() if _fits(low, high, _NANOSECONDS) else {name}
    return found


def _seconds(fragment: pads.ParquetFileFragment, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group with INT96 as seconds, which hold every time."""
    with (
        fragment.open() as source,
        pq.ParquetFile(
            source,
            metadata=fragment.metadata,
            pre_buffer=False,
            buffer_size=1 << 20,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="s",
        ) as file,
    ):
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[*names], use_threads=False)


def _fits(low: int, high: int, per_second: int) -> bool:
    """Whether 64 bits hold all times from one second to another; of the seconds at both ends they hold only a part."""
    return max(-low, high + 1) <= (1 << 63) // per_second


def _in_seconds(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of seconds in an array, which may be of structs and lists."""
    if array.type == pa.timestamp("s"):
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _in_seconds(child)
    elif pa.types.is_nested(array.type) and not pa.types.is_map(array.type):
        yield from _in_seconds(array.flatten())
