"""Decoding a source into a segment: first the keys, which give each row its place, then the columns."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from tensorstash.columns.column import Column
from tensorstash.columns.info import ColumnInfo, StashInfo, TimeInfo, to_header
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.codes import reads_as_numbers
from tensorstash.ingest.constant import Constant
from tensorstash.ingest.decoders import ByAppearance, Decoder, decoder_of
from tensorstash.ingest.keys import Keys, Work, is_key, read_keys, write_key, write_names
from tensorstash.ingest.memory import check_static
from tensorstash.ingest.per_entity import compute_per_entity, in_rows_of_stash
from tensorstash.ingest.plan import Plan, Survey
from tensorstash.ingest.static_table import joined
from tensorstash.ingest.stats import Stats
from tensorstash.segments.draft import Draft
from tensorstash.sources.scan import damage_named

_BLOCK = 1 << 17  # rows looked at together

# a column, its first row in the source, their places (None: as in the source), and the values
Put = Callable[[Column, int, "Int64s | None", NDArray[Any]], None]


@dataclass(frozen=True, slots=True)
class Written:
    """The metadata of a segment, and the warnings for its user."""

    header: dict[str, Any]
    warnings: tuple[str, ...]


def draft(planned: Plan, fd: int | None, on_disk: bool = False) -> Draft:
    """The draft of a segment with the layout of a plan, in the file of descriptor `fd`, or in a new unnamed file."""
    tensors = [(column.name, column.dtype, (planned.rows, *column.shape)) for column in planned.stored]
    return Draft(tensors, _header_bytes(planned), fd, on_disk)


def ingest(surveyed: Survey, draft: Draft, progress: bool | None, report: Callable[[float], None]) -> Written:
    """Write all tensors of a segment. `report` is called with the fraction of the values that are done."""
    scanned, planned = surveyed.scanned, surveyed.planned
    with Progress(planned.rows, progress, report) as done:
        work = Work(scanned, planned, draft, done)
        known = [column for column in planned.columns if is_key(column, work)]
        columns = [column for column in (*planned.columns, *planned.static) if column not in known]
        done.expect(planned.rows * sum(len(c.members) for c in (*columns, planned.entity, planned.time) if c))
        keys = read_keys(work)
        series = surveyed.series
        in_order = [column for column in columns if series is not None and series.makes(column)]
        check_static((*planned.static, *planned.joined), len(keys.names), planned.source)
        looked_up, notes = joined(surveyed.table, keys.names) if surveyed.table else ({}, ())
        constants = {
            c.name: Constant(c, keys.arranger.entities if c in in_order else keys.arranger.codes, len(keys.names))
            for c in planned.static
        }
        put = _placer(draft, constants)
        stats, decoders = _decode(work, [column for column in columns if column not in in_order], keys, put)
        if series is not None:
            more = compute_per_entity(work, series, in_order, keys, put)
            stats, decoders = stats | more[0], decoders | more[1]
    _put_in_order(decoders, draft, constants, stats)
    decoders |= {name: one.decoder for name, one in looked_up.items()}
    stats |= {name: one.stats for name, one in looked_up.items()}
    names = {name: decoder.names for name, decoder in decoders.items() if decoder.names is not None}
    for column in known:
        stats[column.name], texts = write_key(column, keys, work)
        names |= {} if texts is None else {column.name: texts}
    for column in (*planned.columns, *planned.static, *planned.joined):
        if column.name in names:
            write_names(draft, f"{column.name}.__vocabulary", names[column.name])
    for name, held in constants.items():
        held.check(in_rows_of_stash(scanned) if held.column in in_order else scanned, keys.names, names.get(name, []))
        draft.blob(name, held.values, held.column.dtype)
        stats[name].missing, stats[name].unknown = held.missing, held.unknown
    for column in planned.joined:
        draft.blob(column.name, looked_up[column.name].values, column.dtype)
    by_appearance = {name: one.names for name, one in decoders.items() if isinstance(one, ByAppearance)}
    numeric = [_warning_of_numbers(name) for name, texts in by_appearance.items() if reads_as_numbers(texts)]
    return Written(to_header(_info(planned, stats, keys)), (*notes, *numeric))


def _warning_of_numbers(name: str) -> str:
    return (
        f"Column {name!r} is text, which is stored as codes, but nine of ten of its distinct values read as numbers. "
        f"Load the numbers: ts.column(pl.col({name!r}).cast(pl.Float64, strict=False)), where other texts become NaN. "
        "If they are labels, give them as vocabulary=."
    )


def _header_bytes(planned: Plan) -> int:
    """Room for a header that is not known yet: each name occurs in it up to eight times, escaped up to twice."""
    named = [*planned.stored, *planned.static, *planned.joined, *([planned.entity] if planned.entity else [])]
    names = [json.dumps(name) for column in named for name in (column.name, *column.members)]
    return 16_384 + 1024 * (len(named) + len(names)) + 16 * sum(map(len, names))


def _placer(draft: Draft, constants: dict[str, Constant]) -> Put:
    """The function that writes values: to consecutive or scattered rows, or for static columns to their entities."""
    arrays: dict[str, NDArray[Any]] = {}
    lock = Lock()  # mapping a column is slow; two threads must not map the same one

    def place(column: Column, start: int, places: Int64s | None, found: NDArray[Any]) -> None:
        if column.name in constants:
            constants[column.name].add(start, found)
            return
        if places is None:
            draft.write(column.name, start, found)
            return
        with lock:
            if column.name not in arrays:
                arrays[column.name] = draft.array(column.name)
        arrays[column.name][places] = found

    return place


def _decode(work: Work, columns: Sequence[Column], keys: Keys, put: Put) -> tuple[dict[str, Stats], dict[str, Decoder]]:
    """Decode columns, several bundles at a time, or several columns of a bundle where there are few."""
    stats = {column.name: Stats(unknown=None if column.vocabulary is None else 0) for column in columns}
    decoders = {column.name: decoder_of(column) for column in columns}

    def decode(bundle: Bundle, chosen: Sequence[Column], go_on: Callable[[], None]) -> dict[str, Stats]:
        names = list(dict.fromkeys(member for column in chosen for member in column.members))
        counts = {column.name: Stats() for column in chosen}
        unit = bundle[0]
        with damage_named(unit, names):
            for row, batch in read_bundle(bundle, names):
                go_on()
                places = None if keys.arranger.arranged else keys.arranger.places(row, row + batch.num_rows)
                nbytes = 0
                for column in chosen:
                    arrays = [batch.column(names.index(member)) for member in column.members]
                    found, counted = decoders[column.name].decode(arrays, row, unit.place)
                    counts[column.name].add(counted)
                    put(column, row, places, found)
                    nbytes += found.nbytes
                work.progress.add(batch.num_rows * sum(len(column.members) for column in chosen), nbytes)
        return counts

    def decode_job(job: tuple[Bundle, Sequence[Column]], go_on: Callable[[], None]) -> list[dict[str, Stats]]:
        return each_or_all(job[0], lambda bundle: decode(bundle, job[1], go_on))

    parts = bundles(work.scanned.units)
    shares = min(len(columns), -(-threads() // max(len(parts), 1)))
    jobs = [(part, columns[share::shares]) for part in parts for share in range(shares)]
    for _, found in in_threads(jobs, decode_job):
        for name, counted in ((name, counted) for counts in found for name, counted in counts.items()):
            stats[name].add(counted)
    return stats, decoders


def _put_in_order(
    decoders: dict[str, Decoder], draft: Draft, constants: dict[str, Constant], stats: dict[str, Stats]
) -> None:
    """Vocabularies in order of first appearance; codes that threads assigned in another order are renumbered."""
    for name, decoder in decoders.items():
        changed = decoder.finish(stats[name])
        if changed is not None and name in constants:
            constants[name].renumber(changed)
        elif changed is not None:
            _renumber(draft, name, changed)


def _renumber(draft: Draft, name: str, changed: Int32s) -> None:
    rows = draft.entries[name].shape[0]
    for start in range(0, rows, _BLOCK):
        draft.write(name, start, changed[draft.read(name, start, min(_BLOCK, rows - start))])


def _info(planned: Plan, stats: dict[str, Stats], keys: Keys) -> StashInfo:
    def about(c: Column) -> ColumnInfo:
        found = ColumnInfo(c.name, c.members, c.kind, c.unit, c.zone, c.fill, **asdict(stats[c.name]))
        return replace(found, empty=c.empty, calendar=c.calendar)

    time, entity = None, None
    if planned.time and keys.times:
        low, high = (None if at is None else int(at) for at in (keys.times.low, keys.times.high))
        time = TimeInfo(planned.time.members[0], planned.time.unit, planned.time.zone, low, high)
    if planned.entity:
        entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    columns, static = (tuple(map(about, cs)) for cs in (planned.columns, (*planned.static, *planned.joined)))
    return StashInfo(planned.rows, columns, static, entity, time)
