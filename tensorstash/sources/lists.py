"""Series in rows as a scan of their items: lists become columns, and single values are repeated for every item.

Lists are flattened by their offsets, and no Python code runs per series. The length of each series is read first, from
one of its lists, and kept in 4 bytes, because a scan knows its rows before anything is decoded.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.columns.layout import ROW, TIME, Lists
from tensorstash.columns.names import field_of
from tensorstash.columns.types import is_number, is_text
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.frequency import Frequency, frequency, from_alias
from tensorstash.common.threads import each, threads
from tensorstash.errors import ColumnError, DataError, SchemaError
from tensorstash.sources.gluonts import with_arrays
from tensorstash.sources.iso_times import with_iso_time
from tensorstash.sources.regular_times import check_step_column, clock_of, regular_times, time_type
from tensorstash.sources.scan import BATCH_ROWS, Range, Scan, Unit, damage_named, read
from tensorstash.sources.views import without_views

_TEXT = pa.dictionary(pa.int32(), pa.large_string())


@dataclass(frozen=True, slots=True)
class _Source:
    """What is known of the source: its lists that are series, with their number of variates, and how times are made."""

    scanned: Scan
    series: Mapping[str, int | None]  # None: a plain list
    regular: tuple[str, str | None, Frequency | None] | None  # the columns of starts and steps, or the step of all
    schema: pa.Schema  # with items in place of lists


def items_of(
    scanned: Scan, layout: Lists, varying: Collection[str] | None, static: Collection[str], progress: bool | None
) -> Scan:
    """The scan of the items of all series.

    Lists among the columns `varying` are series, of which `None` stands for all columns; lists of `static` stay whole.
    """
    scanned = with_arrays(scanned)
    if layout.regular is not None:
        scanned = with_iso_time(scanned, layout.regular.start)
    names = _series(scanned, varying, static, layout.made)
    _check_made(scanned, layout)
    source = _described(scanned, layout, names)
    counted = each(partial(_lengths_of, names), scanned.units, threads(), "series", progress)
    rows = [int(lengths.sum(dtype=np.int64)) for lengths in counted]
    starts = accumulate(rows, initial=0)
    units = tuple(
        _unit(source, unit, lengths, start, count)
        for unit, lengths, start, count in zip(scanned.units, counted, starts, rows)
    )
    return replace(scanned, schema=source.schema, units=units, range_of=lambda name: _range_of(scanned, name))


def _series(
    scanned: Scan, varying: Collection[str] | None, static: Collection[str], made: Collection[str]
) -> list[str]:
    lists = [field.name for field in scanned.schema if _is_list(field.type)]
    series = [name for name in lists if (name not in static if varying is None else name in varying)]
    if both := [name for name in series if name in static]:
        raise SchemaError(
            f"With layout='lists' a list is a series, or in static= one value of its row; {both[0]!r} of "
            f"{scanned.label} is in both. Leave it out of one."
        )
    if not series:
        for name in sorted(varying or ()):
            if name not in made:
                field_of(scanned.schema, name, scanned.label)
        others = f", and it has the lists {', '.join(map(repr, lists))}" if lists else ""
        raise SchemaError(
            f"With layout='lists' the values of a series are a list; none of the columns that are loaded from "
            f"{scanned.label} is one{others}. Name lists in columns=, or leave layout= out."
        )
    return series


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))


def _check_made(scanned: Scan, layout: Lists) -> None:
    for name in layout.made:
        if name in scanned.schema.names:
            what = "The times of ts.regular are" if name == TIME else "Without entity= the number of each row is"
            remedy = "Rename it." if name == TIME else "Rename it, or name the column of the series as entity=."
            raise SchemaError(f"{what} a column named {name!r}; {scanned.label} has one of that name. {remedy}")


def _described(scanned: Scan, layout: Lists, names: Sequence[str]) -> _Source:
    series = {name: _variates(scanned, field_of(scanned.schema, name, scanned.label)) for name in names}
    fields = [_item_field(field, series.get(field.name, 0), scanned.label) for field in scanned.schema]
    fields += [pa.field(ROW, pa.int64())] if layout.by_row else []
    regular = None
    if layout.regular is not None:
        start = field_of(scanned.schema, layout.regular.start, scanned.label)
        arrow, column, step = time_type(start), layout.regular.step_column, None
        fields.append(pa.field(TIME, arrow))
        if column is None:
            step = frequency(layout.regular.every, clock_of(arrow), None, "every")
        else:
            check_step_column(_step_field(scanned, column))
        regular = start.name, column, step
    return _Source(scanned, series, regular, pa.schema(fields))


def _step_field(scanned: Scan, column: str) -> pa.Field:
    meant = from_alias(column)
    if column in scanned.schema.names or meant == column:
        return field_of(scanned.schema, column, scanned.label)
    raise ColumnError(
        f"every= is a duration as polars writes it, or names a column; {scanned.label} has no column {column!r}. Write "
        f"every={meant!r}."
    )


def _item_field(field: pa.Field, variates: int | None, where: str) -> pa.Field:
    """The field of the items of a column, or of its repeated values where `variates` is 0."""
    if variates == 0:
        return field.with_type(_TEXT) if is_text(field.type) else field
    leaf = field.type.value_type
    if variates is None:
        return field.with_type(leaf)
    if not is_number(leaf.value_type):
        raise SchemaError(
            f"A series is a list of values, or a list of variates, each of them a list of numbers; column "
            f"{field.name!r} of {where} is {field.type}. Leave it out of columns=."
        )
    return field.with_type(pa.list_(leaf.value_type, variates))


def _variates(scanned: Scan, field: pa.Field) -> int | None:
    """How many lists of numbers the first row of a column has that is not empty; `None` for a column of plain lists."""
    if not _is_list(field.type.value_type):
        return None
    for unit in scanned.units:
        for _, batch in read(unit, [field.name]):
            if (counts := _sizes(batch.column(0))).any():
                return int(counts[np.argmax(counts > 0)])
    raise SchemaError(
        f"A list of variates has as many of them as the first row that is neither null nor empty; column "
        f"{field.name!r} of {scanned.label} has no such row. Leave it out of columns=."
    )


def _range_of(scanned: Scan, name: str) -> Range:
    """The statistics of a column whose values are repeated: the number of nulls is not that of the source."""
    about = scanned.range_of(name)
    return about if not about.nulls else replace(about, nulls=None)


# Lengths


def _sizes(array: pa.Array) -> Int64s:
    """The number of items of each list; 0 for a null."""
    if pa.types.is_fixed_size_list(array.type):
        sizes = np.full(len(array), array.type.list_size)
    else:
        sizes = np.diff(array.offsets.to_numpy())
    sizes = np.asarray(sizes, np.int64)
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0) if array.null_count else sizes


def _lengths(array: pa.Array) -> Int64s:
    """How many items the series in each row has, -1 if it is null; of several variates, how many the longest has."""
    if not _is_list(array.type.value_type):
        sizes = _sizes(array)
        return np.where(array.is_null().to_numpy(zero_copy_only=False), -1, sizes) if array.null_count else sizes
    counts, inside = _sizes(array), _lengths(array.flatten())
    lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), -1, 0)
    full = np.flatnonzero(counts)
    if len(full):
        lengths[full] = np.maximum.reduceat(inside, (np.cumsum(counts) - counts)[full])
    return lengths


def _lengths_of(names: Sequence[str], unit: Unit) -> Int32s:
    """The length of the series in each row of a unit: that of the first list which is not null."""
    lengths = np.full(unit.rows, -1, np.int32)
    for name in names:
        found = [_lengths(batch.column(0)) for _, batch in read(unit, [name])]
        lengths = np.where(lengths < 0, np.concatenate([*found, np.empty(0, np.int64)]), lengths).astype(np.int32)
        if (lengths >= 0).all():
            break
    return np.maximum(lengths, 0)


# Items


def _unit(source: _Source, unit: Unit, lengths: Int32s, start: int, rows: int) -> Unit:
    def name(at: int) -> str:
        ends = np.cumsum(lengths, dtype=np.int64)
        row = int(np.searchsorted(ends, at, "right"))
        return f"{_row(source, unit, row)}, item {at - int(ends[row] - lengths[row]):,}"

    return Unit(unit.place, start, rows, partial(_read, source, unit, lengths), start, name=name)


def _row(source: _Source, unit: Unit, row: int) -> str:
    """A row of a unit of the source, for messages."""
    number = f"{unit.first + row:,}"
    return number if unit.place == source.scanned.label else f"{number} ({unit.place})"


def _read(source: _Source, unit: Unit, lengths: Int32s, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches of about as many items as others have rows."""
    inputs = list(dict.fromkeys(one for name in names for one in _inputs(source, name)))
    schema = pa.schema([source.schema.field(name) for name in names]).remove_metadata()
    with damage_named(unit, inputs):
        for first, batch in _batches(unit, inputs):
            own = lengths[first : first + batch.num_rows].astype(np.int64)
            for begin, end in _pieces(own):
                piece = _Piece(source, unit, first + begin, own[begin:end], batch.slice(begin, end - begin))
                arrays = [piece.column(name) for name in names]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches(unit: Unit, inputs: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a unit, each with its first row in the unit; without columns, a batch that has only rows."""
    if not inputs:
        yield 0, pa.record_batch({"": pa.nulls(unit.rows)})
        return
    for row, batch in read(unit, inputs):
        yield row - unit.start, batch


def _inputs(source: _Source, name: str) -> tuple[str, ...]:
    if name == TIME and source.regular is not None:
        start, every, _ = source.regular
        return (start,) if every is None else (start, every)
    return (name,) if name in source.scanned.schema.names else ()


def _pieces(lengths: Int64s) -> Iterator[tuple[int, int]]:
    """Ranges of series with about `BATCH_ROWS` items in total, or with a single longer series."""
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = int(ends[begin] - lengths[begin])
        end = max(int(np.searchsorted(ends, before + BATCH_ROWS, "right")), begin + 1)
        if ends[end - 1] > before:
            yield begin, end
        begin = end


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of the source, and how their columns become columns of items."""

    source: _Source
    unit: Unit
    first: int  # row in the unit
    lengths: Int64s
    batch: pa.RecordBatch

    def column(self, name: str) -> pa.Array:
        """A column of items."""
        if name in self.source.series:
            array = self.batch.column(name)
            if self.source.series[name] is None:
                lengths = _lengths(array)
                if len(wrong := np.flatnonzero((lengths >= 0) & (lengths != self.lengths))):
                    raise self._uneven(name, int(wrong[0]), int(lengths[wrong[0]]))
                return _spread(array.flatten(), array, self.lengths)
            return self._pack(name, array)
        if name == ROW and name not in self.batch.schema.names:
            rows = np.arange(len(self.lengths)) + self.unit.first + self.first
            return pa.array(np.repeat(rows, self.lengths))
        if name == TIME and self.source.regular is not None:
            return self._times(*self.source.regular)
        return _repeated(self.batch.column(name), self.lengths)

    def _times(self, start: str, every: str | None, step: Frequency | None) -> pa.Array:
        starts = _plain(self.batch.column(start)).cast(self.source.schema.field(TIME).type)
        steps = step if step is not None else _plain(self.batch.column(every))

        def refuse(at: int, why: str) -> DataError:
            where = _row(self.source, self.unit, self.first + at)
            return DataError(
                f"The times of a series are its start, one step later, and so on; row {where} {why}. Correct {start!r}"
                f"{'' if every is None else f' and {every!r}'}, or leave such rows out of the source."
            )

        return regular_times(starts, steps, self.lengths, refuse)

    def _pack(self, name: str, array: pa.Array) -> pa.Array:
        """Variates x time as `(items, variates)`."""
        variates, counts = self.source.series[name] or 0, _sizes(array)
        if len(wrong := np.flatnonzero((counts != variates) & (self.lengths > 0) & _valid(array))):
            at = int(wrong[0])
            raise DataError(
                f"A series has the same number of variates in each row; column {name!r} has {counts[at]:,} in row "
                f"{_row(self.source, self.unit, self.first + at)}, and {variates:,} in the first one. Leave such rows "
                "out of the source, or load the others alone."
            )
        inside = array.flatten()
        own = np.repeat(np.arange(len(counts)), counts)
        lengths = _lengths(inside)
        if len(wrong := np.flatnonzero((lengths >= 0) & (lengths != self.lengths[own]))):
            raise self._uneven(name, int(own[wrong[0]]), int(lengths[wrong[0]]))
        # every row that has items has all its variates, or none: then all are missing
        flat = _spread(inside.flatten(), inside, self.lengths[own])
        full = np.where(counts > 0, self.lengths, 0)
        begins = np.repeat(np.cumsum(full * variates) - full * variates, full)
        times = np.arange(len(begins)) - np.repeat(np.cumsum(full) - full, full)
        places = (begins + times)[:, None] + np.repeat(full, full)[:, None] * np.arange(variates)
        items = flat.take(pa.array(places.reshape(-1)))
        if (full != self.lengths).any():
            missing = np.repeat(np.repeat(full == 0, self.lengths), variates)
            index = np.cumsum(~missing) - 1
            items = items.take(pa.array(np.maximum(index, 0), mask=missing)) if len(items) else _nulls(items, missing)
        return pa.FixedSizeListArray.from_arrays(items, type=self.source.schema.field(name).type)

    def _uneven(self, name: str, at: int, length: int) -> DataError:
        """The error for a list that is longer or shorter than the first one of its row."""
        other = next(one for one in self.source.series if self._length(one, at) == self.lengths[at])
        where = f"row {_row(self.source, self.unit, self.first + at)} has {length:,} items in "
        if other == name:
            return DataError(
                f"The variates of a series have one length; {where}one variate of {name!r} and {self.lengths[at]:,} in "
                "another. Pad the shorter ones with nulls."
            )
        return DataError(
            f"The lists of a row have one length; {where}{name!r} and {self.lengths[at]:,} in {other!r}. Name lists "
            "that are no series in static=, or leave them out."
        )

    def _length(self, name: str, at: int) -> int:
        """The length of a list of the piece, read again."""
        found = [_lengths(batch.column(0)) for _, batch in read(self.unit, [name])]
        return int(np.concatenate(found)[self.first + at])


def _valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _spread(items: pa.Array, lists: pa.Array, lengths: Int64s) -> pa.Array:
    """The items of lists, with `lengths` nulls in the place of a list that is null."""
    missing = lists.is_null().to_numpy(zero_copy_only=False) & (lengths > 0) if lists.null_count else np.False_
    if not missing.any():
        return items
    mask = np.repeat(missing, lengths)
    if not len(items):
        return _nulls(items, mask)
    return items.take(pa.array(np.maximum(np.cumsum(~mask) - 1, 0), mask=mask))


def _nulls(items: pa.Array, mask: Any) -> pa.Array:
    return pa.nulls(len(mask), items.type)


def _repeated(array: pa.Array, lengths: Int64s) -> pa.Array:
    """Each value as often as its series has items."""
    rows = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    if not is_text(array.type):
        return array.take(rows)
    coded = pc.dictionary_encode(without_views(_plain(array)).cast(pa.large_string()))
    return pa.DictionaryArray.from_arrays(coded.indices.take(rows), coded.dictionary)


def _plain(array: pa.Array) -> pa.Array:
    return without_views(array).dictionary_decode() if pa.types.is_dictionary(array.type) else without_views(array)
