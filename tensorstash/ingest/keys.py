"""The entity and the time of every row: read before the other columns, and written as entities, offsets and times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.codec import Appearance, Plain
from tensorstash.columns.column import Column
from tensorstash.columns.types import from_arrow, is_text
from tensorstash.common.dtypes import DTYPES, Int32s
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads
from tensorstash.errors import DataError
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.codes import Piece, Vocabulary, piece_of
from tensorstash.ingest.memory import check_sorting
from tensorstash.ingest.null_key import null_key
from tensorstash.ingest.plan import Plan
from tensorstash.ingest.row_order import Arranger, duplicate_time
from tensorstash.ingest.stats import Stats
from tensorstash.ingest.values import values
from tensorstash.segments.draft import Draft
from tensorstash.sources.scan import Scan, damage_named

_BLOCK = 1 << 17  # rows processed at a time

_Stretch = tuple[int, int, list[Piece]]  # the first row, the number of rows, and a piece of each entity column


@dataclass(frozen=True, slots=True)
class Work:
    """A load in progress: its source, its plan, its segment, and its progress bar."""

    scanned: Scan
    planned: Plan
    draft: Draft
    progress: Progress


class Entities:
    """Numbers the entities in order of first appearance, by the values of one column or the tuples of several."""

    def __init__(self, columns: int) -> None:
        self.parts = [Vocabulary() for _ in range(columns)]
        self._pairs = [Vocabulary() for _ in range(columns - 1)]  # of (number of leading parts, next part)

    def encode(self, pieces: Sequence[Piece], start: int, refuse: Callable[[int, int], DataError]) -> Int32s:
        """The entities of the rows `start, start + 1, ...`; `refuse(part, row)` is the error for a null."""
        codes = np.zeros(0, np.int32)
        for k, (part, piece) in enumerate(zip(self.parts, pieces)):
            own, counted = part.encode(piece, start)
            if counted.nulls:
                raise refuse(k, start + int(np.argmax(own < 0)))
            if k:
                pairs = pa.array((codes.astype(np.int64) << 32) | own)
                own, _ = self._pairs[k - 1].encode(piece_of(pairs), start)
            codes = own
        return codes

    def codes(self, part: int) -> Int32s:
        """`(entities,)`, the place of each entity's value in `parts[part].names`."""
        codes = np.arange(len((self._pairs or self.parts)[-1]), dtype=np.int32)
        for k in range(len(self._pairs), 0, -1):
            pairs = np.array(self._pairs[k - 1].names, np.int64)[codes]
            codes = (pairs >> 32).astype(np.int32)
            if k == part:
                return (pairs & 0xFFFFFFFF).astype(np.int32)
        return codes

    def values(self, part: int) -> list[Any]:
        """The value of each entity in one of the columns."""
        names = self.parts[part].names
        return [names[code] for code in self.codes(part).tolist()]


@dataclass(frozen=True, slots=True)
class Keys:
    """The entities of the rows, their order, and the statistics of the times."""

    arranger: Arranger
    entities: Entities | None
    names: list[Any]  # of the entities: tuples for several entity columns, `[None]` for none
    times: Stats | None


def read_keys(work: Work) -> Keys:
    """Decode the keys, and write entities, offsets and times to the segment."""
    planned, draft = work.planned, work.draft
    entities = Entities(len(planned.entity.members)) if planned.entity else None
    arranger = Arranger(
        planned.rows, lambda: check_sorting(planned.rows, planned.source), entities=0 if entities else 1
    )
    times = _stream(work, entities, arranger)
    names = _write_entities(work, entities)
    found = arranger.finish(lambda: draft.array("__time") if planned.time else None)
    if found:
        raise duplicate_time(planned, work.scanned, names[found.entity], found)
    draft.blob("__offsets", arranger.offsets, torch.int64)
    return Keys(arranger, entities, names, times)


def _stream(work: Work, entities: Entities | None, arranger: Arranger) -> Stats | None:
    """Pass all rows to the arranger, in their order, and write their times to the draft; the times' statistics."""
    planned, draft = work.planned, work.draft
    if not (planned.entity or planned.time):
        for start in range(0, planned.rows, _BLOCK):
            arranger.add(np.zeros(min(_BLOCK, planned.rows - start), np.int32), None)
        return None

    def refuse(part: int, row: int) -> DataError:
        assert planned.entity is not None
        return null_key(planned.entity.members[part], work.scanned, row)

    times = Stats()

    def read_keys_of(bundle: Bundle, go_on: Callable[[], None]) -> list[tuple[list[_Stretch], Stats]]:
        return each_or_all(bundle, lambda units: _read_bundle(work, units, go_on))

    for _, found in in_threads(bundles(work.scanned.units), read_keys_of):
        for stretches, counted in found:
            times.add(counted)
            for start, rows, pieces in stretches:
                codes = np.zeros(rows, np.int32) if entities is None else entities.encode(pieces, start, refuse)
                arranger.add(codes, draft.read("__time", start, rows) if planned.time else None)
    return times if planned.time else None


def _read_bundle(work: Work, bundle: Bundle, go_on: Callable[[], None]) -> tuple[list[_Stretch], Stats]:
    """The rows of units, stretch by stretch; writes the times to the draft."""
    planned = work.planned
    members = planned.entity.members if planned.entity else ()
    names = list(dict.fromkeys([*members, *(planned.time.members if planned.time else ())]))
    stretches, stats, unit = [], Stats(), bundle[0]
    with damage_named(unit, names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            nbytes = 0
            pieces = [_narrow(piece_of(batch.column(names.index(member)))) for member in members]
            stretches.append((row, batch.num_rows, pieces))
            if planned.time:
                array = batch.column(names.index(planned.time.members[0]))
                _check_times(array, planned.time, work.scanned, row)
                found, counted = values([array], planned.time, unit.place)
                stats.add(counted)
                work.draft.write("__time", row, found)
                nbytes = found.nbytes
            work.progress.add(batch.num_rows * (len(members) + bool(planned.time)), nbytes)
    return stretches, stats


def _narrow(piece: Piece) -> Piece:
    """The same piece in less memory: all pieces of a unit are held until it is read, and most have few entities."""
    piece.values.validate(full=True)  # here, where an error names the unit and the column
    count = len(piece.values)
    kind = np.int8 if count < 1 << 7 else np.int16 if count < 1 << 15 else np.int32
    return replace(piece, indices=piece.indices.astype(kind, copy=False))


def _check_times(array: pa.Array, column: Column, scanned: Scan, row: int) -> None:
    """Refuse a null here, because the error of `values` would advise `fill=`, which times do not have."""
    times = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if times.null_count:
        raise null_key(column.members[0], scanned, row + int(np.argmax(times.is_null())))


# What is written


def _write_entities(work: Work, entities: Entities | None) -> list[Any]:
    """Write the names of the entities, for several entity columns each part on its own, and return them."""
    entity = work.planned.entity
    if entity is None or entities is None:
        return [None]
    parts = [entities.values(k) for k in range(len(entity.members))]
    for k, (member, names) in enumerate(zip(entity.members, parts)):
        blob = f"__entities.{k}" if entity.shape else "__entities"
        if is_text(_plain_type(work.scanned, member)):
            _write_texts(work.draft, blob, names)
        else:
            _write_integers(work.draft, blob, names)
    return [*zip(*parts)] if entity.shape else parts[0]


def _plain_type(scanned: Scan, name: str) -> pa.DataType:
    arrow = scanned.schema.field(name).type
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


def write_names(draft: Draft, name: str, names: list[Any]) -> None:
    """Write a vocabulary of integers or texts, which may be empty."""
    if names and isinstance(names[0], int):
        _write_integers(draft, name, names)
    else:
        _write_texts(draft, name, names)


def _write_integers(draft: Draft, name: str, names: list[int]) -> None:
    large = max(names, default=0) > np.iinfo(np.int64).max
    numbers = np.array(names, np.uint64 if large else np.int64)
    draft.blob(f"{name}.integers", numbers, torch.uint64 if large else torch.int64)


def _write_texts(draft: Draft, name: str, names: list[str]) -> None:
    """Write texts as two blobs: their UTF-8 bytes, and the end of each text."""
    encoded = [text.encode() for text in names]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    draft.blob(f"{name}.text", np.frombuffer(b"".join(encoded), np.uint8), torch.uint8)
    draft.blob(f"{name}.ends", ends, torch.int64)


# Columns that are a key, and need not be decoded again


def is_key(column: Column, work: Work) -> bool:
    """Whether a column has the same values as the time column or an entity column."""
    planned = work.planned
    if len(column.members) > 1 or column.shape or column.codec not in (Plain(), Appearance()):
        return False
    if planned.time and column.members == planned.time.members:
        return column.dtype == torch.int64 and column.kind == planned.time.kind
    if planned.entity is None or column.members[0] not in planned.entity.members:
        return False
    return column.dtype == from_arrow(column.name, work.scanned.schema.field(column.members[0])).dtype


def write_key(column: Column, keys: Keys, work: Work) -> tuple[Stats, list[Any] | None]:
    """Write a column that is a key; its statistics, and its vocabulary if it has one."""
    planned, draft = work.planned, work.draft
    if planned.time and keys.times and column.members == planned.time.members:
        for start in range(0, planned.rows, _BLOCK):
            draft.write(column.name, start, draft.read("__time", start, min(_BLOCK, planned.rows - start)))
        return keys.times, None
    assert planned.entity is not None
    assert keys.entities is not None
    part = planned.entity.members.index(column.members[0])
    is_category = column.kind == "category"
    names = keys.entities.parts[part].names
    each = keys.entities.codes(part) if is_category else np.array(keys.entities.values(part), DTYPES[column.dtype][1])
    for start in range(0, planned.rows, _BLOCK):
        draft.write(column.name, start, each[keys.arranger.entities(start, min(start + _BLOCK, planned.rows))])
    numbers = range(len(names)) if is_category else names
    return Stats(low=min(numbers, default=None), high=max(numbers, default=None)), (
        _with_fill(names, column) if is_category else None
    )


def _with_fill(names: list[Any], column: Column) -> list[Any]:
    """The vocabulary with the column's fill added, because empty slots of a window hold the fill."""
    return names if column.fill is None or column.fill in names else [*names, column.fill]
