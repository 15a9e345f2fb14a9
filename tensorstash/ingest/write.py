"""Decoding a source into a segment: first the keys, which give each row its place, then the columns."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.codec import Validity
from tensorstash.columns.column import Column
from tensorstash.columns.info import ColumnInfo, StashInfo, TimeInfo, to_header
from tensorstash.columns.number_texts import look_like_numbers
from tensorstash.common.dtypes import Int64s
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.keys import Keys, Work, read_keys, write_names
from tensorstash.ingest.memory import check_columns, check_static
from tensorstash.ingest.plan import Plan, Survey
from tensorstash.ingest.static import Constant, joined
from tensorstash.ingest.values import Stats
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit
from tensorstash.sources.scan import damage_named

_BLOCK = 1 << 17  # rows looked at together
_FIRST_ROWS = 4096  # whose times are looked at

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
    return Draft(tensors, planned.header_bytes, fd, on_disk)


def write_load(
    surveyed: Survey,
    fd: int,
    limits: Sequence[Limit],
    *,
    on_disk: bool,
    key: str,
    progress: bool | None,
    report: Callable[[float], None],
) -> tuple[str, ...]:
    """Write the whole segment of a load into the empty file `fd`, if the limits allow; the warnings for its user."""
    check_columns(surveyed.planned.nbytes, surveyed.planned.source, limits, on_disk)
    segment = draft(surveyed.planned, fd, on_disk)
    written = ingest(surveyed, segment, progress, report)
    segment.seal(written.header, key)
    return written.warnings


def ingest(surveyed: Survey, draft: Draft, progress: bool | None, report: Callable[[float], None]) -> Written:
    """Write all tensors of a segment. `report` is called with the fraction of the values that are done."""
    scanned, planned = surveyed.scanned, surveyed.planned
    with Progress(planned.rows, progress, report) as done:
        work = Work(scanned, planned, draft, done)
        columns = (*planned.columns, *planned.static)
        done.expect(planned.rows * sum(len(c.members) for c in (*columns, planned.entity, planned.time) if c))
        keys = read_keys(work)
        check_static((*planned.static, *planned.joined), len(keys.names), planned.source)
        looked_up, notes = joined(surveyed.table, keys.names, keys.has_rows) if surveyed.table else ({}, ())
        constants = {c.name: Constant(c, keys.arranger.codes, len(keys.names)) for c in planned.static}
        stats, decoders = _decode(work, columns, keys, _placer(draft, constants))
    if planned.entity and not keys.has_rows.all():
        _fill_constants(work, constants, decoders, keys)
    _put_in_order(decoders, draft, constants, stats)
    decoders |= {name: column.decoder for name, column in looked_up.items()}
    stats |= {name: column.stats for name, column in looked_up.items()}
    names = {name: decoder.names for name, decoder in decoders.items() if decoder.names is not None}
    for column in (*planned.columns, *planned.static, *planned.joined):
        if column.name in names:
            words = names[column.name]
            write_names(draft, f"{column.name}.__vocabulary", words, bool(words) and isinstance(words[0], int))
    for name, held in constants.items():
        held.check(scanned, keys.names, names.get(name, []))
        draft.blob(name, held.values, held.column.dtype)
        stats[name].missing, stats[name].unknown = held.missing, held.unknown
    for column in planned.joined:
        draft.blob(column.name, looked_up[column.name].values, column.dtype)
    labels = {c.name for c in planned.columns if planned.entity and c.members[0] in planned.entity.members}
    ascending = {name: d.vocabulary.names for name, d in decoders.items() if d.vocabulary is not None}
    numeric = [name for name, texts in ascending.items() if name not in labels and look_like_numbers(texts)]
    warnings = [*notes, *map(_warning_of_numbers, numeric)]
    if planned.time and planned.time.unit is None and keys.times and _are_dates(draft, keys.times):
        warnings.append(_warning_of_dates(planned.time.members[0]))
    return Written(to_header(_info(planned, stats, keys)), tuple(warnings))


def _are_dates(draft: Draft, times: Stats) -> bool:
    """Whether integer times are dates written as 20240131: the first and last ones, and those of the first rows."""
    rows = min(_FIRST_ROWS, draft.entries["__time"].shape[0])
    numbers = {times.low, times.high, *draft.read("__time", 0, rows).tolist()} - {None}
    if len(numbers) < 2 or not all(19_000_101 <= number <= 21_001_231 for number in numbers):
        return False
    with suppress(ValueError):
        return all(date(number // 10_000, number // 100 % 100, number % 100) for number in map(int, numbers))
    return False


def _warning_of_dates(name: str) -> str:
    return (
        f"Times in {name!r} are integers that read as dates, such as 20240131, and their steps are irregular at "
        f"the end of a month. Load a LazyFrame with dates: frame.with_columns(pl.col({name!r}).cast(pl.String)"
        ".str.to_date('%Y%m%d'))."
    )


def _warning_of_numbers(name: str) -> str:
    return (
        f"Column {name!r} is text, which is stored as codes, but most of its distinct values read as numbers. Load the "
        f"numbers: ts.column(pl.col({name!r}).cast(pl.Float64, strict=False)), where other texts become NaN; "
        '.str.replace_all("[,%]", "") before it removes marks. If they are labels, give them as vocabulary=.'
    )


def _placer(draft: Draft, constants: dict[str, Constant]) -> Put:
    """The function that writes values: to consecutive or scattered rows, or for static columns to their entities."""
    arrays: dict[str, NDArray[Any]] = {}
    lock = Lock()  # mapping a column is slow; two threads must not map the same one

    def place(column: Column, start: int, places: Int64s | None, values: NDArray[Any]) -> None:
        if column.name in constants:
            constants[column.name].add(start, values)
        elif places is None:
            draft.write(column.name, start, values)
        else:
            with lock:
                if column.name not in arrays:
                    arrays[column.name] = draft.array(column.name)
            arrays[column.name][places] = values

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
                    values, value_stats = decoders[column.name].decode(arrays, unit.place)
                    counts[column.name].add(value_stats)
                    put(column, row, places, values)
                    nbytes += values.nbytes
                work.progress.add(batch.num_rows * sum(len(column.members) for column in chosen), nbytes)
        return counts

    def decode_job(job: tuple[Bundle, Sequence[Column]], go_on: Callable[[], None]) -> list[dict[str, Stats]]:
        return each_or_all(job[0], lambda bundle: decode(bundle, job[1], go_on))

    parts = bundles(work.scanned.units)
    shares = min(len(columns), -(-threads() // max(len(parts), 1)))
    jobs = [(part, columns[share::shares]) for part in parts for share in range(shares)]
    for _, parts_of_job in in_threads(jobs, decode_job):
        for name, part_stats in (item for counts in parts_of_job for item in counts.items()):
            stats[name].add(part_stats)
    return stats, decoders


def _fill_constants(work: Work, constants: dict[str, Constant], decoders: dict[str, Decoder], keys: Keys) -> None:
    """Give entities without rows the static values of a row that has none."""
    entities = np.flatnonzero(~keys.has_rows)
    place = f"entities of like= without rows, such as {keys.names[entities[0]]!r}"
    for name, held in constants.items():
        nulls = [pa.nulls(1, work.scanned.schema.field(member).type) for member in held.column.members]
        held.fill(entities, decoders[name].decode(nulls, place)[0])


def _put_in_order(
    decoders: dict[str, Decoder], draft: Draft, constants: dict[str, Constant], stats: dict[str, Stats]
) -> None:
    """Vocabularies in ascending order; codes that were assigned in another order are renumbered."""
    for name, decoder in decoders.items():
        new_codes = decoder.finish(stats[name])
        if new_codes is None:
            continue
        if name in constants:
            constants[name].renumber(new_codes)
            continue
        rows = draft.entries[name].shape[0]
        for start in range(0, rows, _BLOCK):
            draft.write(name, start, new_codes[draft.read(name, start, min(_BLOCK, rows - start))])


def _info(planned: Plan, stats: dict[str, Stats], keys: Keys) -> StashInfo:
    def info_of(c: Column) -> ColumnInfo:
        info = ColumnInfo(c.name, c.members, c.kind, c.unit, c.zone, c.fill, **asdict(stats[c.name]))
        return replace(info, empty=c.empty, calendar=c.calendar, is_validity=isinstance(c.codec, Validity))

    time, entity = None, None
    if planned.time and keys.times:
        low, high = (None if at is None else int(at) for at in (keys.times.low, keys.times.high))
        time = TimeInfo(planned.time.members[0], planned.time.unit, planned.time.zone, low, high, keys.arranger.repeats)
    if planned.entity:
        entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    columns, static = (tuple(map(info_of, part)) for part in (planned.columns, (*planned.static, *planned.joined)))
    return StashInfo(planned.rows, columns, static, entity, time)
