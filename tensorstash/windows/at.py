"""The frame of `at=`: for which entities and times windows are wanted, and its other columns, which batches hold."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tensorstash.columns.names import check_name
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import DataError, SchemaError, unknown
from tensorstash.stash.stash import Stash
from tensorstash.windows.during import check_side
from tensorstash.windows.points import Points

if TYPE_CHECKING:
    import pyarrow as pa

Missing = Literal["error", "drop"]


def check_at(at: Any, closed: object, missing: object, stride: object, where: object) -> None:
    """Refuse arguments of `Windows` that contradict each other."""
    check_side(closed)
    if missing not in get_args(Missing):
        raise ValueError(f'missing must be "error" or "drop", got {missing!r}.')
    if at is None and (closed != "left" or missing != "error"):
        raise ValueError("closed= and missing= must be given with at=. For a span in time, see closed= of ts.During.")
    if at is not None and (stride != 1 or where is not None):
        name = "where=" if where is not None else "stride="
        raise ValueError(
            f"{name} must be left out with at=, which has a row for each window. Choose rows of the frame."
        )


def points_of(stash: Stash, frame: Any, closed: str, spans: Collection[str]) -> Points:
    """The points of a frame in its order, not placed yet; the entity -1 is one that the stash does not have.

    The other columns of the frame must not have the name of one of the spans.
    """
    if stash.time_name is None:
        raise ValueError("at= needs times, and this stash has none. Load it with time=.")
    columns = _columns(frame)
    keys = [*stash.entity_names, stash.time_name]
    for name in keys:
        if name not in columns:
            raise unknown(name, columns, "the frame of at=")
    if twice := [name for name in columns if name in spans and name not in keys]:
        raise SchemaError(f"A column of at= must not have the name of a span, got {twice[0]!r}. Rename one of them.")
    time = _times(columns[stash.time_name], stash)
    if not len(time):
        raise ValueError("The frame of at= must have at least one row, got none.")
    if (farthest := int(np.abs(time.astype(np.float64)).max())) > 1 << 62:
        raise DataError(f"The times of at= must lie within 2**62 ticks of 0, got one {farthest:,} from it.")
    labels = {name: _label(array, name, stash) for name, array in columns.items() if name not in keys}
    entity = _entities(columns, stash)
    none = np.zeros(len(time), np.int64)
    return Points(none, time, np.arange(len(time)), entity, labels, closed)


def _columns(frame: Any) -> "dict[str, pa.ChunkedArray]":
    from tensorstash.ingest.static import read_columns
    from tensorstash.sources.scan import Wanted
    from tensorstash.sources.source import scan

    if isinstance(frame, (str, list, tuple)) or not (
        isinstance(frame, Mapping) or hasattr(frame, "__dataframe__") or hasattr(frame, "__arrow_c_stream__")
    ):
        raise TypeError(
            f"at must be a frame with a row for each window, such as one of polars, pandas or pyarrow, got a "
            f"{type(frame).__name__}."
        )
    scanned = scan(frame, None, Wanted(None), None, progress=False)
    return read_columns(scanned, scanned.schema.names)


def _first_null(array: "pa.ChunkedArray") -> int:
    return int(np.argmax(array.is_null().to_numpy()))


def _times(array: "pa.ChunkedArray", stash: Stash) -> Int64s:
    """The times as ticks of the stash."""
    import pyarrow as pa

    clock, kind, name = stash.clock, array.type, stash.time_name
    is_naive = (pa.types.is_timestamp(kind) and kind.tz is None) or pa.types.is_date(kind)
    if clock.unit is None:
        target, fits = pa.int64(), pa.types.is_integer(kind)
    elif clock.unit == "d":
        target, fits = pa.date32(), pa.types.is_date(kind)
    else:
        zone = None if is_naive else getattr(kind, "tz", None)
        target, fits = pa.timestamp(clock.unit, zone), is_naive if clock.zone is None else zone is not None
    if not fits:
        wanted = "an integer" if clock.unit is None else "a date" if clock.unit == "d" else "a timestamp"
        zone = "" if clock.unit in (None, "d") else f" with the zone {clock.zone}" if clock.zone else " without a zone"
        raise SchemaError(
            f"The times of at= must be {wanted}{zone}, as in the stash; column {name!r} is {kind}. Convert it."
        )
    if array.null_count:
        raise DataError(
            f"Each row of at= must have a time; column {name!r} is null in row {_first_null(array):,}. Drop such rows."
        )
    try:
        cast = array.cast(target)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"The times of at= must be whole ticks of the stash, whose unit is {clock.unit!r}; column {name!r} is "
            f"{kind}, and one would be rounded. Round them yourself, such as with dt.truncate."
        ) from error
    if target == pa.date32():
        cast = cast.cast(pa.int32())
    return np.array(cast.cast(pa.int64()), np.int64)


def _label(array: "pa.ChunkedArray", name: str, stash: Stash) -> NDArray[Any]:
    """The values of a column that batches hold."""
    import pyarrow as pa

    check_name(name, "a column of at=", argument="at")
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
    if pa.types.is_temporal(kind):
        if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")):
            array = array.cast(pa.int32())
        array = array.cast(pa.int64())
    return np.array(array.to_numpy())


def _entities(columns: "Mapping[str, pa.ChunkedArray]", stash: Stash) -> Int32s:
    """The index into `stash.entities` of each row, -1 for one that the stash does not have."""
    rows = len(columns[str(stash.time_name)])
    ours, theirs = np.zeros(len(stash.offsets) - 1, np.int64), np.zeros(rows, np.int64)
    for name in stash.entity_names:
        of_stash, of_frame = _codes(columns[name], name, stash)
        size = int(of_stash.max(initial=0)) + 2
        pairs, ours = np.unique(ours * size + of_stash, return_inverse=True)
        wanted = np.where((theirs < 0) | (of_frame < 0), -1, theirs * size + of_frame)
        at = np.minimum(np.searchsorted(pairs, wanted), max(len(pairs) - 1, 0))
        theirs = np.where(pairs[at] == wanted, at, -1) if len(pairs) else np.full(rows, -1)
    index = np.full(int(ours.max(initial=0)) + 2, -1)  # the last for -1
    index[ours] = np.arange(len(ours))
    return index[theirs].astype(np.int32)


def _codes(array: "pa.ChunkedArray", name: str, stash: Stash) -> tuple[Int64s, Int64s]:
    """The values of the entities and of the rows as codes, -1 for one that no entity has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from tensorstash.columns.types import is_text

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    values = stash.entity_values(name)
    if is_text(array.type) != isinstance(values, list) or not (is_text(array.type) or pa.types.is_integer(array.type)):
        wanted = "text" if isinstance(values, list) else "integers"
        raise SchemaError(
            f"The entities of at= must be {wanted}, as in the stash; column {name!r} is {array.type}. Convert it."
        )
    if array.null_count:
        raise DataError(
            f"Each row of at= must have an entity; column {name!r} is null in row {_first_null(array):,}. Drop such "
            "rows."
        )
    known = pa.array(values).dictionary_encode()
    try:
        places = pc.index_in(array.cast(known.dictionary.type), value_set=known.dictionary)
        codes = np.array(pc.fill_null(places, -1), np.int64)
    except pa.ArrowInvalid:  # integers beyond the type of the stash
        number = {value: k for k, value in enumerate(known.dictionary.to_pylist())}
        codes = np.array([number.get(value, -1) for value in array.to_pylist()], np.int64)
    return np.asarray(known.indices, np.int64), codes
