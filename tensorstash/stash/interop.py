"""A stash as a polars frame or an Arrow table. Functions import these libraries: sampling must not touch them."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.stash.header import StashLike

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def to_polars(stash: StashLike) -> "pl.DataFrame":
    """A frame of entity, time, columns and repeated static columns; packs become arrays, codes become their values."""
    import polars as pl

    series: list[pl.Series] = []
    counts = np.diff(stash.offsets.numpy())
    entities = np.repeat(np.arange(len(counts)), counts)
    series += [names.gather(entities) for names in entity_parts(stash)]
    if stash.time is not None and stash.time_name not in stash.entity_names:
        series.append(time_series(stash, str(stash.time_name), stash.time))
    for name in stash:
        if name not in {s.name for s in series}:
            series.append(_column_series(stash, name, stash[name]))
    for name in stash.static:
        if name not in {s.name for s in series}:
            series.append(_column_series(stash, name, stash.static[name]).gather(entities))
    return pl.DataFrame(series)


def to_arrow(stash: StashLike) -> "pa.Table":
    """A table of entity, time and columns over the memory of the stash, and of repeated static columns."""
    import pyarrow as pa

    from tensorstash.columns.types import BFLOAT16

    columns: dict[str, pa.Array] = {}
    fields: list[pa.Field] = []
    for name in stash.entity_names:
        names = pa.array(stash.entity_values(name)).dictionary_encode()
        rows = np.repeat(np.asarray(names.indices), np.diff(stash.offsets.numpy()))
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(rows), names.dictionary)
    if stash.time is not None:
        times = pa.array(stash.time.numpy())
        columns[str(stash.time_name)] = _arrow_times(times, "timestamp", stash.clock.unit, stash.clock.zone)
    for name in stash:
        if name not in columns:
            columns[name] = _arrow_column(stash, name, stash[name])
    counts = np.diff(stash.offsets.numpy())
    for name, tensor in stash.static.items():
        if name not in columns:
            entities = pa.array(np.repeat(np.arange(len(counts)), counts))
            columns[name] = _arrow_column(stash, name, tensor).take(entities)
    tensors = dict(stash.items()) | stash.static
    for name, array in columns.items():
        is_bfloat16 = name in tensors and tensors[name].dtype == torch.bfloat16
        fields.append(pa.field(name, array.type, metadata=BFLOAT16 if is_bfloat16 else None))
    return pa.table([*columns.values()], schema=pa.schema(fields))


def _arrow_column(stash: StashLike, name: str, tensor: torch.Tensor) -> "pa.Array":
    import pyarrow as pa

    info = stash.about(name)
    array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if info.is_coded:
        names = None if info.kind == "hashed" else stash.vocabulary(name)
        valid = None
        if info.missing or info.unknown:
            bits = ~_without_value(array, None if names is None else len(names))
            valid = pa.py_buffer(np.packbits(bits, bitorder="little"))
        codes = pa.Array.from_buffers(pa.int32(), len(array), [valid, pa.py_buffer(array)])
        if names is None:
            return codes
        numbers = _integers(names)
        values = pa.array(names, pa.string()) if numbers is None else pa.array(numbers)
        try:
            return pa.DictionaryArray.from_arrays(codes, values)
        except pa.ArrowIndexError as error:
            raise stash.segment.damaged(f"column {name!r} has codes that are not in its vocabulary") from error
    flat = _arrow_times(pa.array(array.reshape(-1)), info.kind, info.unit, info.zone)
    for size in reversed(array.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _integers(vocabulary: list[Any]) -> NDArray[Any] | None:
    if not vocabulary or isinstance(vocabulary[0], str):
        return None
    return np.array(vocabulary, np.uint64 if max(vocabulary) > np.iinfo(np.int64).max else np.int64)


def _without_value(codes: NDArray[Any], count: int | None) -> NDArray[np.bool_]:
    """Which codes have no value: -1, or the code of an unknown value in a vocabulary of `count` values."""
    return codes < 0 if count is None else (codes < 0) | (codes >= count)


def _arrow_times(array: "pa.Array", kind: str, unit: str | None, zone: str | None) -> "pa.Array":
    """Numbers unchanged; int64 times in their Arrow type, with 32 bits for dates and times of day in s or ms."""
    import pyarrow as pa

    if unit is None:
        return array
    if unit == "d":
        return array.cast(pa.int32()).view(pa.date32())
    if kind == "time":
        return array.cast(pa.int32()).view(pa.time32(unit)) if unit in ("s", "ms") else array.view(pa.time64(unit))
    return array.view(pa.duration(unit) if kind == "duration" else pa.timestamp(unit, zone))


def entity_parts(stash: StashLike) -> "list[pl.Series]":
    """A series `(entities,)` of texts or integers for each entity column."""
    import polars as pl

    columns = []
    for name in stash.entity_names:
        values = stash.entity_values(name)
        columns.append(pl.Series(name, values, dtype=None if isinstance(values, np.ndarray) else pl.String))
    return columns


def time_series(stash: StashLike, name: str, times: torch.Tensor) -> "pl.Series":
    """Times of the stash, `(n,)`, with their unit and zone."""
    import polars as pl

    return _polars_times(pl.Series(name, times.numpy()), "timestamp", stash.clock.unit, stash.clock.zone)


def _polars_times(series: "pl.Series", kind: str, unit: str | None, zone: str | None) -> "pl.Series":
    import polars as pl

    if unit is None:
        return series
    if unit == "d":
        return series.cast(pl.Int32).cast(pl.Date)
    ticks: Any = "ms" if unit == "s" else unit
    scaled = series * 1000 if unit == "s" else series
    if kind == "duration":
        return scaled.cast(pl.Duration(ticks))
    if kind == "time":
        return (scaled * {"ms": 10**6, "us": 10**3, "ns": 1}[ticks]).cast(pl.Time)
    try:
        return scaled.cast(pl.Datetime(ticks, zone))
    except pl.exceptions.ComputeError:  # polars knows only zones of the database, not "+05:30"
        return scaled.cast(pl.Datetime(ticks, "UTC"))


def _column_series(stash: StashLike, name: str, tensor: torch.Tensor) -> "pl.Series":
    import polars as pl

    info = stash.about(name)
    series = pl.Series(name, (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())
    if info.kind == "hashed":
        return series.set(series < 0, None)
    if info.kind == "category":
        names = stash.vocabulary(name)
        codes = series.set(pl.Series(_without_value(series.to_numpy(), len(names))), None)
        numbers = _integers(names)
        return pl.Series(name, *((names, pl.String) if numbers is None else (numbers,))).gather(codes)
    return series if info.kind == "number" else _polars_times(series, info.kind, info.unit, info.zone)
