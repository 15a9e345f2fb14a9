"""A stash as an Arrow table or a polars frame. Functions import these libraries, because sampling must not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.columns.name_list import Names, Texts

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from tensorstash.stash.stash import Stash


def to_arrow(stash: "Stash") -> "pa.Table":
    """What `Stash.to_arrow` returns."""
    import pyarrow as pa

    from tensorstash.columns.types import BFLOAT16

    columns = _arrow_columns(stash)
    halves = {name for name, entry in stash.segment.tensors.items() if entry.dtype == torch.bfloat16}
    metadata = {name: BFLOAT16 if name in halves else None for name in columns}
    fields = [pa.field(name, array.type, metadata=metadata[name]) for name, array in columns.items()]
    return pa.table([*columns.values()], schema=pa.schema(fields))


def to_polars(stash: "Stash") -> "pl.DataFrame":
    """What `Stash.to_polars` returns."""
    import polars as pl

    return pl.DataFrame([_series(*column) for column in _arrow_columns(stash).items()])


def entity_parts(stash: "Stash") -> "list[pl.Series]":
    """A series `(entities,)` of texts or integers for each entity column."""
    return [*map(_series, stash.entity_names, _columns_of(stash.names()))]


def time_series(stash: "Stash", name: str, times: torch.Tensor) -> "pl.Series":
    """Times of the stash, `(n,)`, with their unit and zone."""
    return _series(name, _times(times.numpy(), "timestamp", stash.clock.unit, stash.clock.zone))


def _arrow_columns(stash: "Stash") -> "dict[str, pa.Array]":
    """The arrays of entity, time, known time, columns and repeated static columns; of equal names the first counts.

    Neither Arrow nor polars has bfloat16. Its bits would be read as integers, so it becomes float32.
    """
    from tensorstash.columns.arrays import of_numbers

    counts = np.diff(stash.offsets.numpy())
    entities = of_numbers(np.repeat(np.arange(len(counts)), counts))
    columns = {
        name: column.dictionary_encode().take(entities)
        for name, column in zip(stash.entity_names, _columns_of(stash.names()))
    }
    for about, times in ((stash.info.time, stash.time), (stash.info.known, stash.known)):
        if about is not None and times is not None:
            columns.setdefault(about.source, _times(times.numpy(), "timestamp", about.unit, about.zone))
    for name, tensor in (*stash.items(), *stash.static.items()):
        if name not in columns:
            array = arrow_column(stash, name, tensor.float() if tensor.dtype == torch.bfloat16 else tensor)
            columns[name] = array.take(entities) if name in stash.static else array
    return columns


def arrow_column(stash: "Stash", name: str, tensor: torch.Tensor) -> "pa.Array":
    """The values of a column, given as a tensor, in Arrow."""
    import pyarrow as pa

    info, array = stash.about(name), tensor.numpy()
    if not info.is_coded:
        flat = _times(array.reshape(-1), info.kind, info.unit, info.zone)
        for size in reversed(array.shape[1:]):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return flat
    names = None if info.kind == "hashed" else stash.vocabulary(name)  # it checks the fill
    valid = None
    if info.missing or info.unknown:  # -1, or the code of an unknown value
        bits = (array >= 0) if names is None else (array >= 0) & (array < len(names))
        valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
    codes = pa.Array.from_buffers(pa.int32(), len(array), [valid, pa.py_buffer(array)])
    if names is None:
        return codes
    try:
        return pa.DictionaryArray.from_arrays(codes, *_columns_of(stash.names(name)))
    except pa.ArrowIndexError:
        raise stash.segment.damaged(f"column {name!r} has codes that are not in its vocabulary") from None


def _columns_of(names: Names) -> "Iterator[pa.Array]":
    """The columns of the entities, or a vocabulary: integers, or texts, which polars trusts to be UTF-8."""
    import pyarrow as pa

    for part, column in zip(names.parts, names.arrow):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            part.tolist()  # raises an error that says where
        yield column.cast(pa.string()) if isinstance(part, Texts) else column


def _times(array: NDArray[Any], kind: str, unit: str | None, zone: str | None) -> "pa.Array":
    """Numbers unchanged; int64 times in their Arrow type, with 32 bits for dates and times of day in s or ms."""
    import pyarrow as pa

    from tensorstash.columns.arrays import of_numbers

    numbers = of_numbers(array)
    if unit is None:
        return numbers
    if unit == "d":
        return numbers.cast(pa.int32()).view(pa.date32())
    if kind == "time":
        return numbers.cast(pa.int32()).view(pa.time32(unit)) if unit in ("s", "ms") else numbers.view(pa.time64(unit))
    return numbers.view(pa.duration(unit) if kind == "duration" else pa.timestamp(unit, zone))


def _series(name: str, array: "pa.Array") -> "pl.Series":
    """An array in polars, with texts instead of codes."""
    import polars as pl
    import pyarrow as pa

    try:
        series = pl.Series(name, array)
    except pl.exceptions.ComputeError:  # polars knows only zones of the database, not "+05:30"
        series = pl.Series(name, array.cast(pa.timestamp(array.type.unit, "UTC")))
    return series.cast(pl.String) if series.dtype == pl.Categorical else series
