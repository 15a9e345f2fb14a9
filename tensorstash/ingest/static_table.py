"""Static columns from a table with a row for each entity, joined to the entities of the source by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import plain_text
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.plan import Survey
from tensorstash.ingest.stats import Stats
from tensorstash.sources.scan import Scan, read

_SHOWN = 5  # entities in a message


@dataclass(frozen=True, slots=True)
class Joined:
    """A static column: `(entities, *shape)` values as a segment takes them, their decoder and their statistics."""

    values: NDArray[Any]
    decoder: Decoder
    stats: Stats


def joined(table: Survey, entities: Sequence[Any]) -> tuple[dict[str, Joined], tuple[str, ...]]:
    """The columns of the table for these entities, tuples of several entity columns, and warnings.

    Rows are brought into the order of the entities before they are decoded, so that vocabularies and statistics are
    those of a static column of the source.
    """
    keys = table.planned.entity
    assert keys is not None
    members = dict.fromkeys(member for column in table.planned.columns for member in column.members)
    arrays = _read(table.scanned, list(dict.fromkeys([*keys.members, *members])))
    parts = [_values(arrays[name], name, table.scanned) for name in keys.members]
    rows, strangers = _rows(list(zip(*parts)) if keys.shape else parts[0], entities, table.scanned)
    ordered = {name: _taken(arrays[name], rows) for name in members}
    found = {}
    for column in table.planned.columns:
        decoder, stats = decoder_of(column), Stats(unknown=None if column.vocabulary is None else 0)
        values, counted = decoder.decode([ordered[member] for member in column.members], 0, table.scanned.label)
        stats.add(counted)
        changed = decoder.finish(stats)
        found[column.name] = Joined(values if changed is None else changed[values], decoder, stats)
    return found, _warnings(strangers, table.scanned.label)


def _read(scanned: Scan, names: list[str]) -> dict[str, pa.ChunkedArray]:
    batches = [batch for unit in scanned.units for _, batch in read(unit, names)]
    return {
        name: pa.chunked_array(
            [plain_text(batch.column(k)) for batch in batches], None if batches else scanned.schema.field(name).type
        )
        for k, name in enumerate(names)
    }


def _values(array: pa.ChunkedArray, name: str, scanned: Scan) -> list[Any]:
    """The names of the entities in one column of the table."""
    values: list[Any] = array.to_pylist()
    if None in values:
        raise DataError(
            f"Every row of a table of static columns has an entity; column {name!r} is null in row "
            f"{values.index(None):,} of {scanned.label} (the first such). Drop those rows."
        )
    return values


def _rows(given: list[Any], entities: Sequence[Any], scanned: Scan) -> tuple[Int64s, list[Any]]:
    """The row of each entity in the table, `(entities,)`, and the entities that only the table has."""
    row_of = {name: row for row, name in enumerate(given)}
    if len(row_of) < len(given):
        row = next(row for row, name in enumerate(given) if row_of[name] != row)
        raise DataError(
            f"A table of static columns has one row for each entity; {scanned.label} has {given[row]!r} in rows "
            f"{row:,} and {given.index(given[row], row + 1):,}. Drop all but one."
        )
    if missing := [name for name in entities if name not in row_of]:
        raise DataError(
            f"A table of static columns has a row for each entity of the source; {scanned.label} has none for "
            f"{_some(missing)}. Add rows for them, or leave these entities out with filter=."
        )
    rows = np.fromiter((row_of[name] for name in entities), np.int64, len(entities))
    known = set(entities)
    return rows, [name for name in given if name not in known]


def _taken(array: pa.ChunkedArray, rows: Int64s) -> pa.Array:
    taken = array.take(pa.array(rows))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _warnings(strangers: list[Any], label: str) -> tuple[str, ...]:
    if not strangers:
        return ()
    return (
        f"{label[0].upper()}{label[1:]} has rows for entities that the source does not have: {_some(strangers)}. "
        "They are not used. Drop them, or compare the spelling.",
    )


def _some(names: list[Any]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} others"
