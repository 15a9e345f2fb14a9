"""Static columns: one value for each entity, from its rows or from a table that is joined by entity."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tensorstash.columns.column import Column, with_counts
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import DTYPES, Bools, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.decoders import Decoder
from tensorstash.ingest.entities import without_nulls
from tensorstash.ingest.keys import Keys
from tensorstash.sources.read import Source, read_whole

_SHOWN = 5  # the most entities that a message names
Bits = NDArray[np.signedinteger[Any]]  # (n, items) values as integers of the same width: NaN then equals NaN
Deciding = tuple[Int64s, Int64s, Bits]  # rows of the source, their entities, and their values


class StaticColumn(NamedTuple):
    """A column with a value for each entity, as a segment keeps it."""

    column: Column  # with its counts
    values: NDArray[Any]  # `(entities, *shape)`
    names: Sequence[Any] | None  # what its codes stand for, if they stand for names


def deciding_rows(rows: Int64s, codes: Int64s, bits: Bits) -> Deciding:
    """Of some rows, in the order of the source, each entity's first row, and those that have another value than it.

    `codes` are their entities, `bits` their values.
    """
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal indices, the last write stays
    firsts = first[codes]
    chosen = (firsts == np.arange(len(codes))) | _differ(bits, bits[firsts])
    return rows[chosen], codes[chosen], bits[chosen]


class Settled:
    """The values of a static column, as the rows that decide them are read in the order of the source."""

    def __init__(self, column: Column, source: Source, entities: Sequence[Any], decoder: Decoder) -> None:
        self._column, self._source, self._entities, self._decoder = column, source, entities, decoder
        self._rows = np.full(len(entities), -1)  # of each entity, the row that had its value; -1: none so far
        self._bits: Bits = np.zeros((len(entities), math.prod(column.shape)), f"i{column.dtype.itemsize}")

    def add(self, deciding: Deciding) -> None:
        """Take over the values of entities that had none so far. Another value of an entity is refused."""
        rows, codes, bits = deciding
        fresh = np.flatnonzero(self._rows[codes] < 0)[::-1]  # of equal indices, the last write stays
        self._rows[codes[fresh]], self._bits[codes[fresh]] = rows[fresh], bits[fresh]
        others = _differ(bits, self._bits[codes])
        if others.any():
            at = int(others.argmax())
            entity = int(codes[at])
            raise self._several_values(entity, int(rows[at]), np.stack([self._bits[entity], bits[at]]))

    def values(self, nulls: int, known: NDArray[Any] | None) -> StaticColumn:
        """The values of all entities; those without rows have the known ones, or that of a row without values.

        `known` are those of the entities of `like=`. The one series of a source without rows, which has none, is
        refused.
        """
        column, source = self._column, self._source
        if known is None and not source.rows and self._entities == [None]:
            raise DataError(
                f"A static column has one value in each entity; {column.name!r} has none, because {source.label} has "
                "no rows. Leave static= out, or name the entity column as entity=."
            )
        if known is None and (without := self._rows < 0).any():
            empty = [pa.nulls(1, source.schema.field(member).type) for member in column.members]
            place = f"entities of like= without rows, such as {self._entities[int(without.argmax())]!r}"
            self._bits[without] = bits_of(self._decoder.decode(empty, place)[0], column)
        held = self._bits.view(DTYPES[column.dtype][1]).reshape(-1, *column.shape)
        if known is None:
            return static_column(column, _renumbered(held, self._decoder), nulls, self._decoder)
        has_rows = np.flatnonzero(self._rows >= 0)  # of many entities few
        values = np.concatenate([known.view(held.dtype), held[len(known) :]])
        values[has_rows] = _renumbered(held[has_rows], self._decoder)
        return static_column(column, values, nulls, self._decoder)

    def _several_values(self, entity: int, row: int, bits: Bits) -> DataError:
        """The error for a row with another value; `bits` are the value of its entity, and its own."""
        column, name, names = self._column, self._entities[entity], self._decoder.names() or ()
        item = int((bits[0] != bits[1]).argmax())
        first, other = (_value_text(value, column, names, item) for value in (bits[:1], bits[1:]))
        whose = "the series (no entity= was given)" if name is None else f"entity {name!r}"
        places = [self._source.name_row(at) for at in (int(self._rows[entity]), row)]
        return DataError(
            f"A static column has one value in each entity; {_item_name(column, item)} of {whose} is {first} in source "
            f"row {places[0]} and {other} in {places[1]}. Load it with columns= instead."
        )


def static_column(column: Column, values: NDArray[Any], nulls: int, decoder: Decoder) -> StaticColumn:
    """A column of the values of all entities, `(entities, *shape)`, with their counts."""
    return StaticColumn(with_counts(column, values, nulls), values, decoder.names())


def _renumbered(values: NDArray[Any], decoder: Decoder) -> NDArray[Any]:
    """Decoded values, with codes that ascend."""
    new_codes = decoder.renumbering()
    return values if new_codes is None else new_codes[values]


def _differ(bits: Bits, others: Bits) -> Bools:
    return (bits != others).any(1)


def bits_of(values: NDArray[Any], column: Column) -> Bits:
    """Values as integers, `(n, items)`; every NaN as the same one."""
    flat = values.reshape(len(values), math.prod(column.shape))
    if column.dtype == torch.bfloat16:
        flat = np.where(flat & 0x7FFF > 0x7F80, np.uint16(0x7FC0), flat)
    elif column.dtype.is_floating_point:
        flat = np.where(np.isnan(flat), flat.dtype.type(math.nan), flat)
    return np.ascontiguousarray(flat).view(f"i{column.dtype.itemsize}")


def _item_name(column: Column, item: int) -> str:
    place = "".join(f"[{k}]" for k in np.unravel_index(item, column.shape)) if column.shape else ""
    return f"{column.name!r}{place}"


def _value_text(bits: Bits, column: Column, vocabulary: Sequence[Any], item: int) -> str:
    value = torch.from_numpy(bits).view(column.dtype).flatten()[item]
    if column.is_coded and value < 0:
        return "null"
    if column.kind == "category":
        return repr(vocabulary[int(value)]) if value < len(vocabulary) else "not in its vocabulary"
    if column.kind in ("timestamp", "date"):
        return Clock(column.unit, column.zone).format(int(value))
    # numpy writes a float32 with as many digits as identify it
    return str((value.float() if column.dtype in (torch.float16, torch.bfloat16) else value).numpy())


def join_table(
    table: Choice, of_rows: Keys, decoders: Mapping[str, Decoder]
) -> tuple[list[StaticColumn], tuple[str, ...]]:
    """The columns of a table for the entities of the keys; and warnings.

    An entity that has no rows in the source needs none in the table: its values are missing. Rows are brought into the
    order of the entities before they are decoded, so that vocabularies and statistics are those of a static column of
    the source.
    """
    keys, label = table.entity, table.source.label
    assert keys is not None
    members = dict.fromkeys(member for column in table.columns for member in column.members)
    arrays = read_whole(table.source, list(dict.fromkeys([*keys.members, *members])))
    names = [without_nulls(arrays[name].combine_chunks(), name, table.source, 0).to_pylist() for name in keys.members]
    counts = np.diff(of_rows.offsets)  # entities that only like= has have no rows
    rows, strangers = _rows([*zip(*names)] if keys.shape else names[0], of_rows.entities, counts > 0, label)
    ordered = {name: arrays[name].take(rows).combine_chunks() for name in members}
    joined = []
    for column in table.columns:
        decoder = decoders[column.name]
        values, nulls = decoder.decode([ordered[member] for member in column.members], label)
        joined.append(static_column(column, _renumbered(values, decoder), nulls, decoder))
    if not strangers:
        return joined, ()
    return joined, (
        f"{label[0].upper()}{label[1:]} has rows for entities that the source does not have: {_listed(strangers)}. "
        "They are not used. Drop them, or compare the spelling.",
    )


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
