"""The frame of `at=`: the entities and times of the windows, and other columns, which are entries of batches."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorstash.columns.names import check_name, field_of
from tensorstash.common.dtypes import Int32s
from tensorstash.common.text import type_text
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.stash.stash import Stash
from tensorstash.windows.entity_numbers import find_entities
from tensorstash.windows.points import Points

if TYPE_CHECKING:
    import pyarrow as pa

Unmatched = Literal["error", "drop"]


def points_of(stash: Stash, frame: Any, closed: str, spans: Collection[str]) -> Points:
    """The points of a frame in its order, without slots yet; entity -1 is one that the stash does not have.

    No other column of the frame may have the name of one of the spans.
    """
    from tensorstash.sources.given_times import ticks_of

    if stash.time_name is None:
        raise ValueError("at= needs times, and this stash has none. Load it with time=.")
    columns = _columns(frame)
    keys = [*stash.entity_names, stash.time_name]
    for name in keys:
        if name not in columns:
            raise unknown(name, columns, "the frame of at=")
    if twice := [name for name in columns if name in spans and name not in keys]:
        raise SchemaError(f"A column of at= must not have the name of a span, got {twice[0]!r}. Rename one of them.")
    if not len(columns[stash.time_name]):
        raise ValueError("The frame of at= must have at least one row, got none.")
    time = ticks_of(columns[stash.time_name], stash.clock, stash.time_name)
    if (farthest := int(np.abs(time.astype(np.float64)).max())) > 1 << 62:
        raise DataError(f"The times of at= must lie within 2**62 ticks of 0, got a time {farthest:,} ticks away.")
    labels = {name: _label(array, name, stash) for name, array in columns.items() if name not in keys}
    kinds = {name: str(columns[name].type) for name in labels}
    entity = _entities(columns, stash)
    none, unknown_entity = np.zeros(len(time), np.int64), ""
    if (entity < 0).any():
        row = int(np.argmax(entity < 0))
        unknown_entity = ", ".join(f"{name} {columns[name][row].as_py()!r}" for name in stash.entity_names)
    return Points(none, time, np.arange(len(time)), entity, labels, kinds, unknown_entity, closed)


def _columns(frame: Any) -> "dict[str, pa.ChunkedArray]":
    """The columns by name."""
    from tensorstash.sources.read import Wanted, read_whole
    from tensorstash.sources.source import open_source

    is_frame = hasattr(frame, "__dataframe__") or (hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "name"))
    if isinstance(frame, (str, list, tuple, Stash)) or not (isinstance(frame, Mapping) or is_frame):
        raise TypeError(
            f"at must be a frame with a row for each window, such as one of polars, pandas or pyarrow, got "
            f"{type_text(frame)}.{' Write at=frame.collect().' * hasattr(frame, 'collect')}"
        )
    source = open_source(frame, None, Wanted(None), None, progress=False)
    return read_whole(source, [field_of(source.schema, name, "at=").name for name in source.schema.names])


def _first_null(array: "pa.ChunkedArray") -> int:
    return int(np.argmax(array.is_null().to_numpy()))


def _label(array: "pa.ChunkedArray", name: str, stash: Stash) -> NDArray[Any]:
    """The values of a column as batches hold them."""
    import pyarrow as pa

    from tensorstash.columns.arrays import filled, integers

    check_name(name, "a column of at=", "at")
    if name in stash.static:
        raise SchemaError(
            f"A column of at= must not have the name of a static column, got {name!r}. Rename it in the frame."
        )
    kind = array.type
    is_number = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (is_number or pa.types.is_temporal(kind)) or pa.types.is_interval(kind):
        raise SchemaError(
            f"The columns of at= must be numbers, booleans or times, because batches hold them; column {name!r} is "
            f"{kind}. Leave it out of the frame, or encode it as numbers."
        )
    if array.null_count and not pa.types.is_floating(kind):
        raise DataError(
            f"Integers, booleans and times have no missing value; column {name!r} of at= is null in row "
            f"{_first_null(array):,}. Drop or fill such rows, or convert it to floats."
        )
    return integers(array) if pa.types.is_temporal(kind) else np.array(filled(array.combine_chunks(), np.nan))


def _entities(columns: "Mapping[str, pa.ChunkedArray]", stash: Stash) -> Int32s:
    """The index into `stash.entities` of each row, -1 for one that the stash does not have."""
    if not stash.entity_names:
        return np.zeros(len(columns[str(stash.time_name)]), np.int32)
    arrays = [(name, columns[name]) for name in stash.entity_names]
    for name, array in arrays:
        if array.null_count:
            raise DataError(
                f"Each row of at= must have an entity; column {name!r} is null in row {_first_null(array):,}. Drop "
                "such rows."
            )
    return find_entities(stash, arrays, "at=", "the stash")
