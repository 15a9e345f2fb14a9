"""Static columns: one value for each entity, from its rows or from a table that is joined by entity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tensorstash.columns.column import Column, ColumnCounts
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.decoders import Decoder
from tensorstash.ingest.survey import Survey
from tensorstash.sources.scan import Scan, read
from tensorstash.sources.storage import without_views

_SHOWN = 5  # the most entities that a message names
Bits = NDArray[np.signedinteger[Any]]  # (n, items) values as integers of the same width: NaN then equals NaN
Deciding = tuple[Int64s, Int32s, Bits]  # rows of the source, their entities, and their values


def deciding_rows(column: Column, start: int, codes: Int32s, values: NDArray[Any]) -> Deciding:
    """The rows among `start, start + 1, ...` that `StaticValues.add` needs; `codes` are their entities.

    These are each entity's first row, and the first of consecutive rows that have another value than it.
    """
    bits = _bits(values, column)
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = (codes[1:] != codes[:-1]) | _differ(bits[1:], bits[:-1])
    rows = np.flatnonzero(starts)  # few rows if the source is grouped by entity, so that the rest is cheap
    codes, bits = codes[rows], bits[rows]
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal indices, the last write stays
    firsts = first[codes]
    chosen = (firsts == np.arange(len(codes))) | _differ(bits, bits[firsts])
    return start + rows[chosen], codes[chosen], bits[chosen]


class StaticValues:
    """The values of a static column, one per entity, from rows that come in the order of the source."""

    def __init__(self, column: Column, entities: int) -> None:
        self.column = column
        self._bits: Bits = np.zeros((entities, math.prod(column.shape)), f"i{column.dtype.itemsize}")
        self._rows: Int64s = np.full(entities, -1)  # the source row of each value; -1: none has come yet
        # the first row whose value differs from its entity's value, the entity, and the value
        self._other: tuple[int, int, Bits] | None = None

    def add(self, rows: Int64s, codes: Int32s, bits: Bits) -> None:
        """Add the next rows that `deciding_rows` chose."""
        new = np.flatnonzero(self._rows[codes] < 0)[::-1]  # backwards, so that an entity's first row is written last
        self._rows[codes[new]] = rows[new]
        self._bits[codes[new]] = bits[new]
        others = np.flatnonzero(_differ(bits, self._bits[codes]))
        if len(others) and self._other is None:
            self._other = int(rows[others[0]]), int(codes[others[0]]), bits[others[:1]]

    def fill(self, entities: Int64s, value: NDArray[Any]) -> None:
        """Give entities without rows a value, `(1, *shape)`."""
        self._bits[entities] = _bits(value, self.column)

    def renumber(self, changed: Int32s) -> None:
        """Replace each code by `changed[code]`."""
        self._bits = changed[self._bits]

    @property
    def values(self) -> Bits:
        """`(entities, *shape)`, as a segment takes them."""
        return self._bits.reshape(-1, *self.column.shape)

    def count(self, counts: ColumnCounts) -> ColumnCounts:
        """The counts of the rows, with missing and unknown values counted once per entity."""
        values, vocabulary = _values(self._bits, self.column), self.column.given_vocabulary
        missing = int((values < 0 if self.column.is_coded else values.isnan()).sum())
        unknown = None if vocabulary is None else int(np.count_nonzero(self._bits == len(vocabulary)))
        return replace(counts, missing=missing, unknown=unknown)

    def check(self, scanned: Scan, entities: list[Any], vocabulary: list[Any]) -> None:
        """Refuse an entity with several values, or the one series of a source without rows, which has none."""
        if not scanned.rows and entities == [None]:
            raise DataError(
                f"A static column has one value in each entity; {self.column.name!r} has none, because "
                f"{scanned.label} has no rows. Leave static= out, or name the entity column as entity=."
            )
        if self._other is None:
            return
        row, entity, bits = self._other
        item = int((bits[0] != self._bits[entity]).argmax())
        first, other = (_value_text(value, self.column, vocabulary, item) for value in (self._bits[[entity]], bits))
        whose = "the series (no entity= was given)" if entities == [None] else f"entity {entities[entity]!r}"
        raise DataError(
            f"A static column has one value in each entity; {_item_name(self.column, item)} of {whose} is {first} in "
            f"source row {scanned.name_row(int(self._rows[entity]))} and {other} in {scanned.name_row(row)}. "
            "Load it with columns= instead."
        )


def _differ(bits: Bits, others: Bits) -> Bools:
    return (bits != others).any(1)


def _bits(values: NDArray[Any], column: Column) -> Bits:
    """Values as integers, `(n, items)`; every NaN as the same one."""
    flat = values.reshape(len(values), math.prod(column.shape))
    if column.dtype == torch.bfloat16:
        flat = np.where(flat & 0x7FFF > 0x7F80, np.uint16(0x7FC0), flat)
    elif column.dtype.is_floating_point:
        flat = np.where(np.isnan(flat), flat.dtype.type(math.nan), flat)
    return np.ascontiguousarray(flat).view(f"i{column.dtype.itemsize}")


def _values(bits: Bits, column: Column) -> torch.Tensor:
    return torch.from_numpy(bits).view(column.dtype).reshape(-1, *column.shape)


def _item_name(column: Column, item: int) -> str:
    if len(column.members) > 1:
        return f"{column.members[item]!r} in {column.name!r}"
    place = "".join(f"[{k}]" for k in np.unravel_index(item, column.shape)) if column.shape else ""
    return f"{column.name!r}{place}"


def _value_text(bits: Bits, column: Column, vocabulary: list[Any], item: int) -> str:
    value = _values(bits, column).flatten()[item]
    if column.is_coded and value < 0:
        return "null"
    if column.kind == "hashed":
        return f"bucket {int(value)}"
    if column.kind == "category":
        return repr(vocabulary[int(value)]) if value < len(vocabulary) else "not in its vocabulary"
    if column.kind in ("timestamp", "date"):
        return Clock(column.unit, column.zone).format(int(value))
    # numpy writes a float32 with as many digits as identify it
    return str((value.float() if column.dtype in (torch.float16, torch.bfloat16) else value).numpy())


def join_table(
    table: Survey, entities: Sequence[Any], has_rows: Bools, decoders: Mapping[str, Decoder]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The columns of a table, `(entities, *shape)` each, for entities, tuples of several entity columns; and warnings.

    An entity that has no rows in the source needs none in the table: its values are missing. Rows are brought into the
    order of the entities before they are decoded, so that vocabularies and statistics are those of a static column of
    the source.
    """
    keys, label = table.planned.entity, table.scanned.label
    assert keys is not None
    members = dict.fromkeys(member for column in table.planned.columns for member in column.members)
    arrays = read_columns(table.scanned, list(dict.fromkeys([*keys.members, *members])))
    names = [_entity_values(arrays[name], name, label) for name in keys.members]
    rows, strangers = _rows([*zip(*names)] if keys.shape else names[0], entities, has_rows, label)
    ordered = {name: arrays[name].take(rows).combine_chunks() for name in members}
    joined = {}
    for column in table.planned.columns:
        decoder = decoders[column.name]
        values, more = decoder.decode([ordered[member] for member in column.members], label)
        decoder.counts += more
        new_codes = decoder.finish()
        joined[column.name] = values if new_codes is None else new_codes[values]
    if not strangers:
        return joined, ()
    return joined, (
        f"{label[0].upper()}{label[1:]} has rows for entities that the source does not have: {_listed(strangers)}. "
        "They are not used. Drop them, or compare the spelling.",
    )


def read_columns(scanned: Scan, names: list[str]) -> dict[str, pa.ChunkedArray]:
    """Columns of a small table, whole."""
    batches = [batch for unit in scanned.units for _, batch in read(unit, names)]
    fields = [scanned.schema.field(name) for name in names]
    return {
        field.name: pa.chunked_array(
            [without_views(batch.column(k)) for batch in batches], None if batches else field.type
        )
        for k, field in enumerate(fields)
    }


def _entity_values(array: pa.ChunkedArray, name: str, label: str) -> list[Any]:
    values: list[Any] = array.to_pylist()
    if None in values:
        raise DataError(
            f"Every row of a table of static columns has an entity; column {name!r} is null in row "
            f"{values.index(None):,} of {label} (the first such). Drop these rows."
        )
    return values


def _rows(names: list[Any], entities: Sequence[Any], has_rows: Bools, label: str) -> tuple[pa.Array, list[Any]]:
    """The row of each entity in the table, null without one, and the entities that only the table has."""
    row_of = {name: row for row, name in enumerate(names)}
    if len(row_of) < len(names):
        row = next(row for row, name in enumerate(names) if row_of[name] != row)
        raise DataError(
            f"A table of static columns has one row for each entity; {label} has {names[row]!r} in rows "
            f"{row:,} and {names.index(names[row], row + 1):,}. Drop all but one."
        )
    if missing := [name for name, has in zip(entities, has_rows.tolist()) if has and name not in row_of]:
        raise DataError(
            f"A table of static columns has a row for each entity of the source; {label} has none for "
            f"{_listed(missing)}. Add rows for them, or leave these entities out with filter=."
        )
    rows = pa.array([row_of.get(name) for name in entities], pa.int64())
    known = set(entities)
    return rows, [name for name in names if name not in known]


def _listed(names: list[Any]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"
