"""Decoding a source into a segment: first the keys, which give each row its place, then the columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.codec import Validity
from tensorstash.columns.column import Column
from tensorstash.columns.info import ColumnInfo, StashInfo, TimeInfo, to_header
from tensorstash.columns.number_texts import look_like_numbers
from tensorstash.common.progress import Progress
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.keys import Keys, Work, holds_keys, read_keys, units_of_keys, write_names
from tensorstash.ingest.memory import check_columns, check_static
from tensorstash.ingest.plan import Plan, Survey
from tensorstash.ingest.row_order import Arranger
from tensorstash.ingest.static import Constant, Deciding, deciding_rows, join_table
from tensorstash.ingest.values import Stats
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit
from tensorstash.sources.scan import Unit, damage_named

_BLOCK = 1 << 17  # rows looked at together
_FIRST_ROWS = 4096  # whose times are looked at


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What is known of a bundle whose rows have been written."""

    stats: dict[str, Stats]
    deciding: list[tuple[str, Deciding]]  # rows of static columns, for `Constant.add`


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the rows of columns go."""

    work: Work
    decoders: Mapping[str, Decoder]
    arranger: Arranger
    arrays: Mapping[str, NDArray[Any]]  # the mapped columns, if their rows do not come in the order of the stash


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
    columns = (*planned.columns, *planned.static)
    with Progress(planned.rows, progress, report) as done:
        work = Work(scanned, planned, draft, done)
        done.expect(planned.rows * sum(len(c.members) for c in (*columns, planned.entity, planned.time) if c))
        keys = read_keys(work)
        check_static((*planned.static, *planned.joined), len(keys.names), planned.source)
        decoders = {column.name: decoder_of(column) for column in (*columns, *planned.joined)}
        joined, notes = join_table(surveyed.table, keys.names, keys.has_rows, decoders) if surveyed.table else ({}, ())
        constants = {column.name: Constant(column, len(keys.names)) for column in planned.static}
        of_keys = [column for column in planned.columns if holds_keys(column, planned)]
        _decode(_Target(work, decoders, keys.arranger, {}), units_of_keys(work, keys), of_keys, {})
        others = [column for column in columns if column not in of_keys]
        arrays = (
            {} if keys.arranger.arranged else {c.name: draft.array(c.name) for c in others if c.name not in constants}
        )
        _decode(_Target(work, decoders, keys.arranger, arrays), scanned.units, others, constants)
    if planned.entity and not keys.has_rows.all():
        _fill_constants(work, constants, decoders, keys)
    _put_in_order(columns, decoders, draft, constants)
    for name, decoder in decoders.items():
        names = decoder.names
        if names is not None:
            write_names(draft, f"{name}.__vocabulary", names, bool(names) and isinstance(names[0], int))
    for name, constant in constants.items():
        constant.check(scanned, keys.names, decoders[name].names or [])
        draft.blob(name, constant.values, constant.column.dtype)
        decoders[name].stats.missing, decoders[name].stats.unknown = constant.missing, constant.unknown
    for column in planned.joined:
        draft.blob(column.name, joined[column.name], column.dtype)
    warnings = [*notes, *_warnings(work, keys, decoders)]
    return Written(to_header(_info(planned, decoders, keys)), tuple(warnings))


def _warnings(work: Work, keys: Keys, decoders: Mapping[str, Decoder]) -> Iterator[str]:
    """Warnings of texts that read as numbers, and of integer times that read as dates."""
    planned = work.planned
    labels = {c.name for c in planned.columns if planned.entity and c.members[0] in planned.entity.members}
    for name, decoder in decoders.items():
        if decoder.vocabulary is not None and name not in labels and look_like_numbers(decoder.vocabulary.names):
            yield (
                f"Column {name!r} is text, which is stored as codes, but most of its distinct values read as numbers. "
                f"Load the numbers: ts.column(pl.col({name!r}).cast(pl.Float64, strict=False)), where other texts "
                'become NaN; .str.replace_all("[,%]", "") before it removes marks. If they are labels, give them as '
                "vocabulary=."
            )
    if planned.time and planned.time.unit is None and keys.times and _are_dates(work.draft, keys.times):
        name = planned.time.members[0]
        yield (
            f"Times in {name!r} are integers that read as dates, such as 20240131, and their steps are irregular at "
            f"the end of a month. Load a LazyFrame with dates: frame.with_columns(pl.col({name!r}).cast(pl.String)"
            ".str.to_date('%Y%m%d'))."
        )


def _are_dates(draft: Draft, times: Stats) -> bool:
    """Whether integer times are dates written as 20240131: the first and last ones, and those of the first rows."""
    rows = min(_FIRST_ROWS, draft.entries["__time"].shape[0])
    numbers = {times.low, times.high, *draft.read("__time", 0, rows).tolist()} - {None}
    if len(numbers) < 2 or not all(19_000_101 <= number <= 21_001_231 for number in numbers):
        return False
    with suppress(ValueError):
        return all(date(number // 10_000, number // 100 % 100, number % 100) for number in map(int, numbers))
    return False


def _decode(
    target: _Target, units: Sequence[Unit], columns: Sequence[Column], constants: Mapping[str, Constant]
) -> None:
    """Decode columns, several bundles at a time, or several columns of a bundle where there are few."""

    def decode(job: tuple[Bundle, Sequence[Column]], go_on: Callable[[], None]) -> list[_Decoded]:
        return each_or_all(job[0], lambda bundle: _decode_bundle(target, bundle, job[1], go_on))

    parts = bundles(units)
    shares = min(len(columns), -(-threads() // max(len(parts), 1)))
    jobs = [(part, columns[share::shares]) for part in parts for share in range(shares)]
    for _, decoded in in_threads(jobs, decode):
        for bundle in decoded:
            for name, stats in bundle.stats.items():
                target.decoders[name].stats.add(stats)
            for name, rows in bundle.deciding:
                constants[name].add(*rows)


def _decode_bundle(target: _Target, bundle: Bundle, columns: Sequence[Column], go_on: Callable[[], None]) -> _Decoded:
    work, arranger = target.work, target.arranger
    names = list(dict.fromkeys(member for column in columns for member in column.members))
    decoded = _Decoded({column.name: Stats() for column in columns}, [])
    with damage_named(bundle[0], names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            end, nbytes = row + batch.num_rows, 0
            places = arranger.places(row, end) if target.arrays else None
            for column in columns:
                members = [batch.column(names.index(member)) for member in column.members]
                values, stats = target.decoders[column.name].decode(members, bundle[0].place)
                decoded.stats[column.name].add(stats)
                if column in work.planned.static:
                    rows = deciding_rows(column, row, arranger.codes(row, end), values)
                    decoded.deciding.append((column.name, rows))
                elif places is None:
                    work.draft.write(column.name, row, values)
                else:
                    target.arrays[column.name][places] = values
                nbytes += values.nbytes
            work.progress.add(batch.num_rows * sum(len(column.members) for column in columns), nbytes)
    return decoded


def _fill_constants(work: Work, constants: Mapping[str, Constant], decoders: Mapping[str, Decoder], keys: Keys) -> None:
    """Give entities without rows the static values of a row that has none."""
    entities = np.flatnonzero(~keys.has_rows)
    place = f"entities of like= without rows, such as {keys.names[entities[0]]!r}"
    for name, constant in constants.items():
        nulls = [pa.nulls(1, work.scanned.schema.field(member).type) for member in constant.column.members]
        constant.fill(entities, decoders[name].decode(nulls, place)[0])


def _put_in_order(
    columns: Sequence[Column], decoders: Mapping[str, Decoder], draft: Draft, constants: Mapping[str, Constant]
) -> None:
    """Vocabularies in ascending order; codes that were assigned in another order are renumbered."""
    for name in (column.name for column in columns):
        new_codes = decoders[name].finish()
        if new_codes is None:
            continue
        if name in constants:
            constants[name].renumber(new_codes)
            continue
        rows = draft.entries[name].shape[0]
        for start in range(0, rows, _BLOCK):
            draft.write(name, start, new_codes[draft.read(name, start, min(_BLOCK, rows - start))])


def _info(planned: Plan, decoders: Mapping[str, Decoder], keys: Keys) -> StashInfo:
    def info_of(c: Column) -> ColumnInfo:
        info = ColumnInfo(c.name, c.members, c.kind, c.unit, c.zone, c.fill, **asdict(decoders[c.name].stats))
        return replace(info, empty=c.empty, calendar=c.calendar, is_validity=isinstance(c.codec, Validity))

    time, entity = None, None
    if planned.time and keys.times:
        low, high = (None if at is None else int(at) for at in (keys.times.low, keys.times.high))
        time = TimeInfo(planned.time.members[0], planned.time.unit, planned.time.zone, low, high, keys.arranger.repeats)
    if planned.entity:
        entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    columns, static = (tuple(map(info_of, part)) for part in (planned.columns, (*planned.static, *planned.joined)))
    return StashInfo(planned.rows, columns, static, entity, time)
