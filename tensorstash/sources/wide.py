"""Series in columns as a scan of rows: all rows of the first series, then those of the second, and so on.

The long form is made in small pieces, each when it is read: of many short series at a time, or of one long series.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from tensorstash.columns.expression import Expression
from tensorstash.columns.layout import Wide
from tensorstash.columns.names import field_of
from tensorstash.columns.polars_texts import first_line, short_text
from tensorstash.columns.types import is_text
from tensorstash.common.forks import check_pool
from tensorstash.errors import DataError, SchemaError
from tensorstash.sources.scan import BATCH_ROWS, Scan, Unit, damage_named, read
from tensorstash.sources.streams import ROWS, spooled
from tensorstash.sources.unify import wider
from tensorstash.sources.views import without_views

_ROWS = 1 << 20  # of the series that are read together
_PIECES = 64  # smaller ones than those of a spool are read once for each series only if there are no more than these


@dataclass(frozen=True, slots=True)
class _Source:
    """The source, and what becomes of its columns."""

    scanned: Scan
    layout: Wide
    members: tuple[str, ...]
    schema: pa.Schema  # of the long form

    @property
    def made(self) -> frozenset[str]:
        return self.layout.made


def long_form(scanned: Scan, layout: Wide, others: Collection[str]) -> Scan:
    """The scan of one column for all series; `others` are the columns that the series share."""
    members = _members(scanned, layout, others)
    for name in sorted(layout.made):
        if name in scanned.schema.names:
            argument = "entity" if name == layout.entity else "columns"
            raise SchemaError(
                f"With layout='wide' entity= and the name of the series in columns= are new names; {name!r} in "
                f"{argument}= is a column of {scanned.label}. Choose another."
            )
    pieces = len(scanned.units)
    if not scanned.columnar or (pieces > _PIECES and scanned.rows < pieces * ROWS):
        scanned = spooled(scanned, [*members, *(name for name in scanned.schema.names if name in others)])
    source = _Source(scanned, layout, members, _schema(scanned, layout, members))
    units = tuple(_units(source))
    return replace(scanned, schema=source.schema, units=units, pieces=len(units) + scanned.pieces - pieces)


def _members(scanned: Scan, layout: Wide, others: Collection[str]) -> tuple[str, ...]:
    """The columns that are series."""
    if layout.members is None:
        members = tuple(name for name in scanned.schema.names if name not in others)
    elif isinstance(layout.members, Expression):
        members = _selected(scanned, layout.members)
    else:
        members = layout.members
    for name in members:
        field_of(scanned.schema, name, scanned.label)
        if name in others:
            raise SchemaError(
                f"With layout='wide' a column is a series, or shared by all series; {name!r} of {scanned.label} is "
                f"both. Leave it out of columns={{{layout.value!r}: ...}}, with polars by pl.exclude({name!r})."
            )
    if not members:
        raise SchemaError(
            f"With layout='wide' there is at least one series; none of the columns of {scanned.label} is chosen. Name "
            f"some: columns={{{layout.value!r}: [...]}}."
        )
    return members


def _selected(scanned: Scan, selector: Expression) -> tuple[str, ...]:
    """The columns that a selector of polars stands for."""
    import polars as pl

    check_pool()
    fields = [pa.field(f.name, pa.large_string() if is_text(f.type) else f.type) for f in scanned.schema]
    try:
        empty = pl.DataFrame(pl.from_arrow(pa.schema(fields).empty_table()))
        return tuple(empty.select(selector.expr).columns)
    except (Exception, pl.exceptions.PanicException) as error:
        raise SchemaError(
            f"A selector chooses among the columns of the source; {short_text(selector.expr)} fails for "
            f"{scanned.label}: {first_line(error)}. Name the columns."
        ) from error


def _schema(scanned: Scan, layout: Wide, members: Sequence[str]) -> pa.Schema:
    """The other columns, the entity, and the values in the widest type that the series have."""
    first, *rest = (scanned.schema.field(name) for name in members)
    whole = first.with_type(_plain_type(first.type))
    for field in rest:
        wide = wider(whole, field.with_type(_plain_type(field.type)))
        if wide is None:
            raise SchemaError(
                f"With layout='wide' all series have one type; {field.name!r} of {scanned.label} is {field.type}, and "
                f"{first.name!r} is {first.type}. Leave one out: columns={{{layout.value!r}: [...]}}."
            )
        whole = wide
    names = pa.field(layout.entity, pa.dictionary(pa.int32(), pa.large_string()))
    series = {*members}
    kept = [field.with_type(_plain_type(field.type)) for field in scanned.schema if field.name not in series]
    return pa.schema([*kept, names, whole.with_name(layout.value)])


def _plain_type(arrow: pa.DataType) -> pa.DataType:
    if is_text(arrow):
        return pa.large_string()
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


# Units: some series, in all pieces of the source if they are short


def _units(source: _Source) -> Iterator[Unit]:
    rows, start = source.scanned.rows, 0
    count = _ROWS // max(rows, 1)
    for first in range(0, len(source.members), max(count, 1)):
        members = range(first, min(first + max(count, 1), len(source.members)))
        for units in [source.scanned.units] if count > 1 else [(unit,) for unit in source.scanned.units]:
            height = sum(unit.rows for unit in units)
            place = _place(source, units, members)
            read_ = partial(_read, source, units, members)
            name = partial(_name_row, source, units[0].start if units else 0, height, members)
            yield Unit(place, start, height * len(members), read_, start, name=name)
            start += height * len(members)


def _place(source: _Source, units: Sequence[Unit], members: range) -> str:
    where = units[0].place if len(units) == 1 else source.scanned.label
    names = [repr(source.members[members[0]]), repr(source.members[members[-1]])]
    return f"{where}, column {names[0]}" if len(members) == 1 else f"{where}, columns {names[0]} to {names[1]}"


def _name_row(source: _Source, first: int, height: int, members: range, at: int) -> str:
    member, row = divmod(at, height)
    return f"{source.scanned.name_row(first + row)} of column {source.members[members[member]]!r}"


def _read(source: _Source, units: Sequence[Unit], members: range, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    series = [source.members[index] for index in members] if source.layout.value in names else []
    shared = [name for name in names if name not in source.made]
    batches = (batch for unit in units for batch in _batches(unit, [*series, *shared]))
    for piece in [[*batches]] if len(members) > 1 else ([batch] for batch in batches):
        whole = _long(source, piece, members, names)
        for start in range(0, whole.num_rows, BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def _batches(unit: Unit, names: list[str]) -> Iterator[pa.RecordBatch]:
    if not names:
        yield pa.record_batch({"": pa.nulls(unit.rows)})
        return
    with damage_named(unit, names):
        for _, batch in read(unit, names):
            yield batch


def _long(source: _Source, batches: list[pa.RecordBatch], members: range, names: Sequence[str]) -> pa.RecordBatch:
    """The rows of some batches, once for each of some series."""
    height = sum(batch.num_rows for batch in batches)
    arrays = []
    for name in names:
        field = source.schema.field(name)
        if name == source.layout.entity:
            own = np.repeat(np.arange(len(members), dtype=np.int32), height)
            entities = pa.array([source.members[index] for index in members], pa.large_string())
            arrays.append(pa.DictionaryArray.from_arrays(own, entities))
        else:
            each = [source.members[k] for k in members] if name == source.layout.value else [name] * len(members)
            parts = [_converted(batch.column(column), field.type, column) for column in each for batch in batches]
            arrays.append(parts[0] if len(parts) == 1 else pa.concat_arrays([*parts, pa.nulls(0, field.type)]))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _converted(array: pa.Array, arrow: pa.DataType, name: str) -> pa.Array:
    array = without_views(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        return array.cast(arrow)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"Series of integers and floats are read as floats, exactly; column {name!r} is {array.type}, and does not "
            f"fit into {arrow}: {error}. Write all series in one type."
        ) from error
