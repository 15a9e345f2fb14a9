"""The entity and the time of every row: read before the other columns, and written as entities, offsets and times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.arrays import numbers, of_numbers
from tensorstash.columns.calendar import calendar_values
from tensorstash.columns.codec import Ascending
from tensorstash.columns.column import Column, ColumnCounts
from tensorstash.columns.types import is_text
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads
from tensorstash.errors import DataError
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.codes import Piece, as_arrow, piece_of
from tensorstash.ingest.decoders import Decoder
from tensorstash.ingest.entities import Entities, without_nulls
from tensorstash.ingest.memory import check_sorting
from tensorstash.ingest.row_order import Arranger, duplicate_time
from tensorstash.ingest.survey import Planned
from tensorstash.ingest.values import values
from tensorstash.segments.draft import Draft
from tensorstash.sources.scan import Scan, Unit, damage_named
from tensorstash.stash.header import times_checksum

_BLOCK = 1 << 17  # rows processed at a time

_Batch = tuple[int, list[Piece]]  # the number of its rows, and a piece for each entity column


@dataclass(frozen=True, slots=True)
class Work:
    """A load in progress: its source, its plan, its segment, its progress bar, and a decoder for each column."""

    scanned: Scan
    planned: Planned
    draft: Draft
    progress: Progress
    decoders: Mapping[str, Decoder]


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The entities of the rows, their order, and what was counted in their times."""

    arranger: Arranger
    names: list[Any]  # of the entities: tuples for several entity columns, `[None]` for none
    counts: Mapping[str, ColumnCounts]  # of the times, and of the known times, by the names of their tensors
    checksums: Mapping[str, int]  # of the same in the order of the stash

    @property
    def has_rows(self) -> Bools:
        """Which entities have rows; all but some of `like=`."""
        return np.diff(self.arranger.offsets) > 0


def read_keys(work: Work) -> RowKeys:
    """Decode the keys, and write entities, offsets and times to the segment."""
    planned, draft = work.planned, work.draft
    known = planned.entity.codec.known if planned.entity and isinstance(planned.entity.codec, Ascending) else ()
    entities = Entities(len(planned.entity.members), known) if planned.entity else None
    arranger = Arranger(
        planned.rows,
        lambda row_bytes: check_sorting(planned.rows, row_bytes, planned.source),
        entities=1 if entities is None else len(known),
        duplicates=planned.duplicates,
    )
    counts = _arrange(work, entities, arranger)
    order = np.arange(1) if entities is None else entities.order()
    if entities is not None and planned.unknown == "error" and len(order) > len(known):
        raise _unknown_entity(entities, order[len(known) :])
    names = [None] if entities is None else _write_entities(work, entities.values(order))
    times = {column.name: draft.array(column.name) for column in planned.times}
    duplicate = arranger.finish(order, times.get("__time"), times.get("__known"))
    if duplicate:
        raise duplicate_time(planned, work.scanned, names[duplicate.entity], duplicate)
    draft.blob("__offsets", arranger.offsets, torch.int64)
    return RowKeys(arranger, names, counts, {name: times_checksum(array) for name, array in times.items()})


def _arrange(work: Work, entities: Entities | None, arranger: Arranger) -> dict[str, ColumnCounts]:
    """Pass the entities to the arranger, write the times to the draft, and return their counts."""
    planned = work.planned
    if not (planned.entity or planned.time):
        for start in range(0, planned.rows, _BLOCK):
            arranger.add(np.zeros(min(_BLOCK, planned.rows - start), np.int32))
        return {}
    counts = {column.name: ColumnCounts() for column in planned.times}

    def read_keys_of(bundle: Bundle, go_on: Callable[[], None]) -> list[tuple[list[_Batch], dict[str, ColumnCounts]]]:
        return each_or_all(bundle, lambda units: _read_bundle(work, units, go_on))

    for parts in in_threads(bundles(work.scanned.units), read_keys_of):
        for batches, more in parts:
            counts = {name: counts[name] + more[name] for name in counts}
            for rows, pieces in batches:
                arranger.add(np.zeros(rows, np.int32) if entities is None else entities.encode(pieces))
    return counts


def _read_bundle(work: Work, bundle: Bundle, go_on: Callable[[], None]) -> tuple[list[_Batch], dict[str, ColumnCounts]]:
    entity, times = work.planned.entity, work.planned.times
    members = entity.members if entity else ()
    names = list(dict.fromkeys([*members, *(column.members[0] for column in times)]))
    batches, counts, unit = [], {column.name: ColumnCounts() for column in times}, bundle[0]
    with damage_named(unit, names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            arrays = dict(zip(names, batch.columns))
            keys = [without_nulls(arrays[member], member, work.scanned, row) for member in members]
            pieces = [_narrow(piece_of(key)) for key in keys]
            batches.append((batch.num_rows, pieces))
            nbytes = 0
            for column in times:
                (name,) = column.members
                array = without_nulls(arrays[name], name, work.scanned, row, "time" if column is times[0] else "known")
                ticks, _ = values([array], column, unit.place)
                counts[column.name] += ColumnCounts.of(ticks, column)
                work.draft.write(column.name, row, ticks)
                nbytes += ticks.nbytes
            work.progress.add(batch.num_rows * (len(members) + len(times)), nbytes)
    return batches, counts


def _unknown_entity(entities: Entities, strangers: Int64s) -> DataError:
    """The error for entities that `like=` lacks."""
    parts = entities.values(strangers[:1])
    first = parts[0][0] if len(parts) == 1 else tuple(part[0] for part in parts)
    return DataError(
        f"unknown='error' takes only entities that like= has; {len(strangers):,} of the source are unknown, such as "
        f"{first!r}. Leave them out with unknown='drop', or take 'keep'."
    )


def _narrow(piece: Piece) -> Piece:
    """Save memory: all pieces of a unit are held until it is read, and most have few entities."""
    count = len(piece.values)
    kind = np.int8 if count < 1 << 7 else np.int16 if count < 1 << 15 else np.int32
    return Piece(piece.indices.astype(kind, copy=False), piece.values)


def _write_entities(work: Work, parts: list[list[Any]]) -> list[Any]:
    entity = work.planned.entity
    assert entity is not None
    for k, (member, names) in enumerate(zip(entity.members, parts)):
        integers = not is_text(work.scanned.schema.field(member).type)
        write_names(work.draft, f"__entities.{k}" if entity.shape else "__entities", names, integers)
    return [*zip(*parts)] if entity.shape else parts[0]


def holds_keys(column: Column, planned: Planned) -> bool:
    """Whether `units_of_keys` yields a column: it is a key, or computed from the times."""
    entity = [planned.entity] if planned.entity else []
    keys = [member for key in (*entity, *planned.times) for member in key.members]
    return bool(column.calendar) or (not column.bits and set(column.members) <= {*keys})


def units_of_keys(work: Work, keys: RowKeys) -> list[Unit]:
    """Units that yield keys and fields of the calendar in stash order, from memory: the source is not read again."""
    planned, offsets = work.planned, keys.arranger.offsets
    parts = [*zip(*keys.names)] if planned.entity and planned.entity.shape else [keys.names]
    entities = dict(zip(planned.entity.members, map(as_arrow, parts))) if planned.entity else {}
    calendar = {name: pair for column in planned.columns for name, pair in zip(column.members, column.calendar)}

    def read(start: int, stop: int, names: Sequence[str]) -> list[pa.RecordBatch]:
        first, end = int(np.searchsorted(offsets, start, "right")) - 1, int(np.searchsorted(offsets, stop, "left"))
        borders: Int64s = np.clip(offsets[first : end + 1], start, stop)
        codes = np.repeat(np.arange(first, end), np.diff(borders))
        columns = {name: pa.DictionaryArray.from_arrays(of_numbers(codes), values) for name, values in entities.items()}
        for key in planned.times:
            columns[key.members[0]] = of_numbers(work.draft.read(key.name, start, stop - start))
        if planned.time:
            times = numbers(columns[planned.time.members[0]])
            clock = Clock(planned.time.unit, planned.time.zone)
            for name in calendar.keys() & names:
                columns[name] = of_numbers(calendar_values([calendar[name]], times, clock)[:, 0])
        return [pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))]

    blocks = [(start, min(start + _BLOCK, planned.rows)) for start in range(0, planned.rows, _BLOCK)]
    return [Unit(planned.source, start, stop - start, partial(read, start, stop), start) for start, stop in blocks]


def write_names(draft: Draft, name: str, names: Sequence[Any], integers: bool) -> None:
    """Write integers, or texts as two blobs: their UTF-8 bytes, and the end of each text."""
    if integers:
        values = numbers(as_arrow(names))
        draft.blob(f"{name}.integers", values, torch.uint64 if values.dtype == np.uint64 else torch.int64)
        return
    encoded = [text.encode() for text in names]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    draft.blob(f"{name}.text", np.frombuffer(b"".join(encoded), np.uint8), torch.uint8)
    draft.blob(f"{name}.ends", ends, torch.int64)
