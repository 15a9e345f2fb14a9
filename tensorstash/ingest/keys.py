"""The entity and the time of every row: read before the other columns, and written as entities, offsets and times."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from tensorstash.columns.codec import Ascending
from tensorstash.columns.types import is_text
from tensorstash.common.dtypes import Bools
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.codes import Piece
from tensorstash.ingest.entities import Entities, check_key, key_piece
from tensorstash.ingest.memory import check_sorting
from tensorstash.ingest.plan import Plan
from tensorstash.ingest.row_order import Arranger, duplicate_time
from tensorstash.ingest.values import Stats, values
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


@dataclass(frozen=True, slots=True)
class Keys:
    """The entities of the rows, their order, and the statistics of the times."""

    arranger: Arranger
    names: list[Any]  # of the entities: tuples for several entity columns, `[None]` for none
    times: Stats | None

    @property
    def has_rows(self) -> Bools:
        """Which entities have rows; all but some of `like=`."""
        return np.diff(self.arranger.offsets) > 0


def read_keys(work: Work) -> Keys:
    """Decode the keys, and write entities, offsets and times to the segment."""
    planned, draft = work.planned, work.draft
    known = planned.entity.codec.known if planned.entity and isinstance(planned.entity.codec, Ascending) else ()
    entities = Entities(len(planned.entity.members), known) if planned.entity else None
    arranger = Arranger(
        planned.rows,
        lambda row_bytes: check_sorting(planned.rows, row_bytes, planned.source),
        entities=1 if entities is None else len(known),
        repeated=planned.repeated,
    )
    times = _stream(work, entities, arranger)
    order = np.arange(1) if entities is None else entities.order()
    parts = [] if entities is None else entities.values(order)
    names = _write_entities(work, parts)
    duplicate = arranger.finish(order, lambda: draft.array("__time") if planned.time else None)
    if duplicate:
        raise duplicate_time(planned, work.scanned, names[duplicate.entity], duplicate)
    draft.blob("__offsets", arranger.offsets, torch.int64)
    return Keys(arranger, names, times)


def _stream(work: Work, entities: Entities | None, arranger: Arranger) -> Stats | None:
    """Pass all rows to the arranger, in their order, and write their times to the draft; the times' statistics."""
    planned, draft = work.planned, work.draft
    if not (planned.entity or planned.time):
        for start in range(0, planned.rows, _BLOCK):
            arranger.add(np.zeros(min(_BLOCK, planned.rows - start), np.int32), None)
        return None
    times = Stats()

    def read_keys_of(bundle: Bundle, go_on: Callable[[], None]) -> list[tuple[list[_Stretch], Stats]]:
        return each_or_all(bundle, lambda units: _read_bundle(work, units, go_on))

    for _, parts in in_threads(bundles(work.scanned.units), read_keys_of):
        for stretches, part_stats in parts:
            times.add(part_stats)
            for start, rows, pieces in stretches:
                codes = np.zeros(rows, np.int32) if entities is None else entities.encode(pieces)
                arranger.add(codes, draft.read("__time", start, rows) if planned.time else None)
    return times if planned.time else None


def _read_bundle(work: Work, bundle: Bundle, go_on: Callable[[], None]) -> tuple[list[_Stretch], Stats]:
    planned = work.planned
    members = planned.entity.members if planned.entity else ()
    names = list(dict.fromkeys([*members, *(planned.time.members if planned.time else ())]))
    stretches, stats, unit = [], Stats(), bundle[0]
    with damage_named(unit, names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            nbytes = 0
            pieces = [_narrow(key_piece(batch.column(names.index(m)), m, work.scanned, row)) for m in members]
            stretches.append((row, batch.num_rows, pieces))
            if planned.time:
                array = batch.column(names.index(planned.time.members[0]))
                check_key(array, planned.time.members[0], work.scanned, row, is_time=True)
                times, batch_stats = values([array], planned.time, unit.place)
                stats.add(batch_stats)
                work.draft.write("__time", row, times)
                nbytes = times.nbytes
            work.progress.add(batch.num_rows * (len(members) + bool(planned.time)), nbytes)
    return stretches, stats


def _narrow(piece: Piece) -> Piece:
    """The same piece in less memory: all pieces of a unit are held until it is read, and most have few entities."""
    piece.values.validate(full=True)  # here, where an error names the unit and the column
    count = len(piece.values)
    kind = np.int8 if count < 1 << 7 else np.int16 if count < 1 << 15 else np.int32
    return replace(piece, indices=piece.indices.astype(kind, copy=False))


def _write_entities(work: Work, parts: list[list[Any]]) -> list[Any]:
    """Write the names of the entities, those of several entity columns apart, and return them."""
    entity = work.planned.entity
    if entity is None:
        return [None]
    for k, (member, names) in enumerate(zip(entity.members, parts)):
        arrow = work.scanned.schema.field(member).type
        integers = not is_text(arrow.value_type if pa.types.is_dictionary(arrow) else arrow)
        write_names(work.draft, f"__entities.{k}" if entity.shape else "__entities", names, integers)
    return [*zip(*parts)] if entity.shape else parts[0]


def write_names(draft: Draft, name: str, names: list[Any], integers: bool) -> None:
    """Write integers, or texts as two blobs: their UTF-8 bytes, and the end of each text."""
    if integers:
        large = max(names, default=0) > np.iinfo(np.int64).max
        numbers = np.array(names, np.uint64 if large else np.int64)
        draft.blob(f"{name}.integers", numbers, torch.uint64 if large else torch.int64)
        return
    encoded = [text.encode() for text in names]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    draft.blob(f"{name}.text", np.frombuffer(b"".join(encoded), np.uint8), torch.uint8)
    draft.blob(f"{name}.ends", ends, torch.int64)
