"""Decode a source into a segment: first the keys, which determine the place of each row, then the columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tensorstash.columns.column import Column, ColumnCounts
from tensorstash.columns.info import KnownInfo, StashInfo, TimeInfo, to_header
from tensorstash.columns.number_texts import look_like_numbers
from tensorstash.common.clock import Clock
from tensorstash.common.progress import Progress, rows_bar
from tensorstash.common.text import counted
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.carried import carried_values
from tensorstash.ingest.decoders import decoder_of
from tensorstash.ingest.memory import check_columns, check_static
from tensorstash.ingest.row_keys import RowKeys, Work, holds_keys, read_keys, units_of_keys, write_names
from tensorstash.ingest.row_order import Arranger
from tensorstash.ingest.static import Deciding, StaticValues, deciding_rows, join_table
from tensorstash.ingest.survey import Survey
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit
from tensorstash.sources.scan import Unit, damage_named
from tensorstash.stash.header import MONTH_DAYS
from tensorstash.stash.month_days import LAST, kept_days
from tensorstash.stash.stash import Stash

_BLOCK = 1 << 17  # rows looked at together
_FIRST_ROWS = 4096  # whose times are looked at
_WORTH_A_THREAD = 1 << 20  # values: to decode fewer takes less time than to start a thread and wait for it


_Arrays = Mapping[str, NDArray[Any]]  # the mapped columns, if their rows do not come in the order of the stash
_Job = tuple[Bundle, Sequence[Column]]
# of a bundle: the counts of each column, and rows of static columns for `StaticValues.add`
_Decoded = tuple[dict[str, ColumnCounts], list[tuple[str, Deciding]]]


def write_load(
    surveyed: Survey,
    fd: int | None,
    limits: Sequence[Limit],
    *,
    on_disk: bool = False,
    key: str | None = None,
    progress: bool | None,
    report: Callable[[float], None] = lambda _: None,
) -> tuple[Draft, tuple[str, ...]]:
    """Write the whole segment of a load, if the limits allow, and collect the warnings for its user.

    It goes into the empty file `fd`, or into a new unnamed file. `report` is called with the fraction that is done.
    """
    planned = surveyed.planned
    check_columns(planned.nbytes, planned.source, limits, on_disk)
    tensors = [(column.name, column.dtype, (planned.rows, *column.shape)) for column in planned.stored]
    draft = Draft(tensors, planned.header_bytes, fd, on_disk)
    read = (*planned.columns, *planned.static, planned.entity, *planned.times)
    values = planned.rows * sum(len(column.members) for column in read if column)
    decoders = {c.name: decoder_of(c) for c in (*planned.columns, *planned.static, *planned.joined)}
    with rows_bar(planned.rows, "loading", progress) as bar:
        work = Work(surveyed.scanned, planned, draft, Progress(bar, values, report), decoders)
        keys = read_keys(work)
        check_static((*planned.static, *planned.joined, *planned.carried), len(keys.names), planned.source)
        joined, notes = join_table(surveyed.table, keys.names, keys.has_rows, decoders) if surveyed.table else ({}, ())
        static_values = _decode_columns(work, keys)
    for name, decoder in decoders.items():
        if (names := decoder.names) is not None:
            write_names(draft, f"{name}.__vocabulary", names, bool(names) and isinstance(names[0], int))
    for name, held in static_values.items():
        draft.blob(name, held.values, held.column.dtype)
        decoders[name].counts = held.count(decoders[name].counts)
    for column in planned.joined:
        draft.blob(column.name, joined[column.name], column.dtype)
    carried = [] if surveyed.like is None else _carry(draft, planned.carried, surveyed.like, keys.names)
    if surveyed.like is not None and planned.time is not None:
        _carry_days(draft, planned.time, surveyed.like, len(keys.names))
    draft.seal(to_header(_info(work, keys, carried)), key)
    return draft, (*notes, *_warnings(work, keys))


def _carry(draft: Draft, columns: Sequence[Column], like: Stash, entities: list[Any]) -> list[Column]:
    """Write static columns of `like=`; returns them with their counts."""
    carried = []
    for column in columns:
        values, counted = carried_values(column, like, entities)
        draft.blob(column.name, values, column.dtype)
        if column.kind == "category":
            names = like.vocabulary(column.name)
            write_names(draft, f"{column.name}.__vocabulary", names, bool(names) and isinstance(names[0], int))
        carried.append(counted)
    return carried


def _carry_days(draft: Draft, time: Column, like: Stash, entities: int) -> None:
    """Write the days of the month of `like=`, which its rows had; of other entities none is known."""
    if like.clock == Clock(time.unit, time.zone) and (days := kept_days(like)) is not None:
        days = np.append(days, np.full(entities - len(days), LAST, np.int8))
        draft.blob(MONTH_DAYS, days, torch.int8)


def _warnings(work: Work, keys: RowKeys) -> Iterator[str]:
    planned = work.planned
    if planned.strangers:
        yield planned.strangers
    for name, decoder in work.decoders.items():
        if unknown := decoder.unknown:
            yield (
                f"unknown='drop' takes texts that like= lacks as missing: {counted(sum(unknown.values()), 'value')} of "
                f"{name!r}, such as {min(unknown)!r}."
            )
    labels = {c.name for c in planned.columns if planned.entity and c.members[0] in planned.entity.members}
    for name, decoder in work.decoders.items():
        if decoder.vocabulary is not None and name not in labels and look_like_numbers(decoder.vocabulary.names):
            yield (
                f"Column {name!r} is text, which is stored as codes, but most of its distinct values read as numbers. "
                f"Load the numbers: ts.column(pl.col({name!r}).cast(pl.Float64, strict=False)), where other texts "
                'become NaN. Before the cast, .str.replace(",", ".") reads a decimal comma, .str.replace_all(",", "") '
                "commas between thousands. If they are labels, give them as vocabulary=."
            )
    for column in planned.times:
        if column.unit is not None or not _are_dates(work.draft, column.name, keys.counts[column.name]):
            continue
        name = column.members[0]
        yield (
            f"Times in {name!r} are integers that read as dates, such as 20240131, and their steps are irregular at "
            f"the end of a month. Load a LazyFrame with dates: frame.with_columns(pl.col({name!r}).cast(pl.String)"
            ".str.to_date('%Y%m%d'))."
        )


def _are_dates(draft: Draft, name: str, times: ColumnCounts) -> bool:
    """Whether integer times are dates written as 20240131: the first and last ones, and those of the first rows."""
    rows = min(_FIRST_ROWS, draft.entries[name].shape[0])
    numbers = {times.low, times.high, *draft.read(name, 0, rows).tolist()} - {None}
    if len(numbers) < 2 or not all(19_000_101 <= number <= 21_001_231 for number in numbers):
        return False
    with suppress(ValueError):
        return all(date(number // 10_000, number // 100 % 100, number % 100) for number in map(int, numbers))
    return False


def _decode_columns(work: Work, keys: RowKeys) -> dict[str, StaticValues]:
    """Decode the columns into the draft, and return the static ones."""
    planned, draft, arranger = work.planned, work.draft, keys.arranger
    static_values = {column.name: StaticValues(column, len(keys.names)) for column in planned.static}
    of_keys = [column for column in planned.columns if holds_keys(column, planned)]
    others = [column for column in planned.columns if column not in of_keys]
    moved = [] if arranger.arranged else [column.name for column in others]
    groups = [moved] if planned.rows * len(moved) < _WORTH_A_THREAD else [[name] for name in moved]
    mapped = in_threads(groups, lambda names, _: {name: draft.array(name) for name in names})
    arrays = {name: array for group in mapped for name, array in group.items()}
    first = _decode(work, arranger, units_of_keys(work, keys), of_keys, {}) if of_keys else ()
    second = _decode(work, arranger, work.scanned.units, [*others, *planned.static], arrays)
    for name, rows in chain(first, second):
        static_values[name].add(*rows)
    for name, held in static_values.items():
        held.check(work.scanned, keys.names, work.decoders[name].names or [])
    if planned.entity and not keys.has_rows.all():
        _fill_static(work, keys, static_values)
    for name in (column.name for column in (*planned.columns, *planned.static)):
        new_codes = work.decoders[name].finish()
        if new_codes is not None and name in static_values:
            static_values[name].renumber(new_codes)
        elif new_codes is not None:
            for start in range(0, planned.rows, _BLOCK):
                codes = draft.read(name, start, min(_BLOCK, planned.rows - start))
                draft.write(name, start, new_codes[codes])
    return static_values


def _decode(
    work: Work, arranger: Arranger, units: Sequence[Unit], columns: Sequence[Column], arrays: _Arrays
) -> Iterator[tuple[str, Deciding]]:
    """Decode several bundles at a time, or several columns of a large bundle where there are few; yield static rows."""

    def decode(job: _Job, go_on: Callable[[], None]) -> list[_Decoded]:
        return each_or_all(job[0], lambda bundle: _decode_bundle(work, arranger, (bundle, job[1]), arrays, go_on))

    parts = bundles(units)
    count = max(len(parts), 1)
    worth = work.planned.rows // count * len(columns) // _WORTH_A_THREAD
    shares = min(len(columns), 1 if worth <= 1 else min(worth, -(-threads() // count)))
    jobs = [(part, columns[share::shares]) for part in parts for share in range(shares)]
    for decoded in in_threads(jobs, decode):
        for counts, deciding in decoded:
            for name, more in counts.items():
                work.decoders[name].counts += more
            yield from deciding


def _decode_bundle(work: Work, arranger: Arranger, job: _Job, arrays: _Arrays, go_on: Callable[[], None]) -> _Decoded:
    bundle, columns = job
    names = list(dict.fromkeys(member for column in columns for member in column.members))
    counts, deciding = {column.name: ColumnCounts() for column in columns}, list[tuple[str, Deciding]]()
    with damage_named(bundle[0], names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            end, nbytes = row + batch.num_rows, 0
            places = arranger.places(row, end) if arrays else None
            for column in columns:
                members = [batch.column(names.index(member)) for member in column.members]
                values, more = work.decoders[column.name].decode(members, bundle[0].place)
                counts[column.name] += more
                if column in work.planned.static:
                    deciding.append((column.name, deciding_rows(column, row, arranger.codes(row, end), values)))
                elif places is None:
                    work.draft.write(column.name, row, values)
                else:
                    arrays[column.name][places] = values
                nbytes += values.nbytes
            work.progress.add(batch.num_rows * sum(len(column.members) for column in columns), nbytes)
    return counts, deciding


def _fill_static(work: Work, keys: RowKeys, static_values: Mapping[str, StaticValues]) -> None:
    """Give entities without rows the static values of a row that has none."""
    entities = np.flatnonzero(~keys.has_rows)
    place = f"entities of like= without rows, such as {keys.names[entities[0]]!r}"
    for name, held in static_values.items():
        nulls = [pa.nulls(1, work.scanned.schema.field(member).type) for member in held.column.members]
        held.fill(entities, work.decoders[name].decode(nulls, place)[0])


def _info(work: Work, keys: RowKeys, carried: Sequence[Column]) -> StashInfo:
    planned, time, known, entity = work.planned, None, None, None
    if planned.time:
        checksum = keys.checksums["__time"]
        time = TimeInfo(planned.time.members[0], *_clock_and_range(planned.time, keys), keys.arranger.repeats, checksum)
    if planned.known:
        facts = planned.duplicates, keys.arranger.known_first, keys.checksums["__known"]
        expression = planned.expressions.get(planned.known.members[0])
        known = KnownInfo(str(planned.known_name), *_clock_and_range(planned.known, keys), *facts, expression)
    if planned.entity:
        entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    columns, static = (
        tuple(replace(column, counts=work.decoders[column.name].counts) for column in part)
        for part in (planned.columns, (*planned.static, *planned.joined))
    )
    members = {member for column in columns for member in column.members}
    expressions = tuple((name, text) for name, text in planned.expressions.items() if name in members)
    return StashInfo(planned.rows, columns, (*static, *carried), entity, time, known, expressions, planned.frequency)


def _clock_and_range(times: Column, keys: RowKeys) -> tuple[str | None, str | None, int | None, int | None]:
    counts = keys.counts[times.name]
    low, high = (None if at is None else int(at) for at in (counts.low, counts.high))
    return times.unit, times.zone, low, high
