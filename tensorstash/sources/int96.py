"""Times in INT96, an old type of Parquet: their range is wider than that of nanoseconds, in which they are read."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tensorstash.errors import DataError
from tensorstash.sources.read import BATCH_ROWS, Unit, read

_MOST_SECONDS = (1 << 63) // 10**9  # of nanoseconds in 64 bits; of the seconds at both ends they hold only a part


def check_int96(fragment: pads.ParquetFileFragment, group: int, place: str, names: Sequence[str]) -> None:
    """Refuse times in a row group that nanoseconds do not hold: pyarrow would wrap them."""
    unit = Unit(place, 0, fragment.metadata.row_group(group).num_rows, partial(_seconds, fragment, group), 0)
    for _, batch in read(unit, names):
        found = [(name, times) for name, array in zip(names, batch.columns) for times in _in_seconds(array)]
        for name, times in found:
            low, high = (bound.as_py() or 0 for bound in pc.min_max(times.cast(pa.int64())).values())
            if max(-low, high + 1) > _MOST_SECONDS:
                raise DataError(
                    f"Times in INT96 are read in nanoseconds, from 1677 to 2262; column {name!r} of {place} has "
                    f"others. Load a dataset in microseconds: pyarrow.dataset.dataset({fragment.path!r}, "
                    "format=pyarrow.dataset.ParquetFileFormat(coerce_int96_timestamp_unit='us'))."
                )


def _seconds(fragment: pads.ParquetFileFragment, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group with INT96 as seconds, which hold every time."""
    options = {"coerce_int96_timestamp_unit": "s", "pre_buffer": False, "buffer_size": 1 << 20}
    with (
        fragment.open() as source,
        pq.ParquetFile(source, metadata=fragment.metadata, page_checksum_verification=True, **options) as file,
    ):
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[*names], use_threads=False)


def _in_seconds(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of seconds in an array, which may be of structs and lists."""
    if array.type == pa.timestamp("s"):
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _in_seconds(child)
    elif pa.types.is_nested(array.type) and not pa.types.is_map(array.type):
        yield from _in_seconds(array.flatten())
