"""Decode a source into a segment: first the keys, which determine the place of each row, then the columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.column import Column, ColumnCounts, with_counts
from tensorstash.columns.info import KnownInfo, StashInfo, TimeInfo, to_header
from tensorstash.columns.number_texts import look_like_numbers
from tensorstash.common.dtypes import Int64s
from tensorstash.common.progress import Progress, rows_bar
from tensorstash.common.text import counted
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Bundle, bundles, each_or_all, read_bundle
from tensorstash.ingest.carried import carried_values
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.keys import Keys, Work, holds_keys, read_keys, units_of_keys, write_names
from tensorstash.ingest.memory import check_columns, check_static
from tensorstash.ingest.row_order import blocks, entities_between
from tensorstash.ingest.static import Deciding, bits_of, deciding_rows, join_table, together, values_of
from tensorstash.ingest.survey import Survey
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit
from tensorstash.sources.scan import Unit, damage_named
from tensorstash.stash.stash import Stash

_DECIDING = 1 << 17  # rows that decide the values of a static column are held before they are put together
_FIRST_ROWS = 4096  # whose times are looked at
_WORTH_A_THREAD = 1 << 20  # values: to decode fewer takes less time than to start a thread and wait for it


_Arrays = Mapping[str, NDArray[Any]]  # the mapped columns, if their rows do not come in the order of the stash
_Job = tuple[Bundle, Sequence[Column]]
_Counted = tuple[NDArray[Any], ColumnCounts]  # `(entities, *shape)` values
# of a bundle: the counts of each column, and the rows of static columns that decide
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
        check_static((*planned.static, *planned.joined, *planned.carried), len(keys.entities), planned.source)
        joined, notes = (
            join_table(surveyed.table, keys.entities, keys.has_rows, decoders) if surveyed.table else ({}, ())
        )
        counts, values_by_entity = _decode_columns(work, keys)
    for column in (*planned.columns, *planned.static, *planned.joined):
        if (names := _names_of(column, decoders[column.name])) is not None:
            write_names(draft, f"{column.name}.__vocabulary", names, bool(names) and isinstance(names[0], int))
    for column in (*planned.static, *planned.joined):
        held, counts[column.name] = {**values_by_entity, **joined}[column.name]
        draft.blob(column.name, held, column.dtype)
    carried = [] if surveyed.like is None else _carry(draft, planned.carried, surveyed.like, keys.entities)
    draft.seal(to_header(_info(work, keys, counts, carried)), key)
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


def _warnings(work: Work, keys: Keys) -> Iterator[str]:
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


def _names_of(column: Column, decoder: Decoder) -> Sequence[Any] | None:
    """The names that the codes of a column stand for, if it has codes with names."""
    return column.given_vocabulary if decoder.vocabulary is None else decoder.vocabulary.names


def _decode_columns(work: Work, keys: Keys) -> tuple[dict[str, ColumnCounts], dict[str, _Counted]]:
    """Decode the columns into the draft; returns the counts of all, and the static ones."""
    planned, draft = work.planned, work.draft
    of_keys = [column for column in planned.columns if holds_keys(column, planned)]
    others = [column for column in planned.columns if column not in of_keys]
    moved = [] if keys.places is None else [column.name for column in others]
    groups = [moved] if planned.rows * len(moved) < _WORTH_A_THREAD else [[name] for name in moved]
    mapped = in_threads(groups, lambda names, _: {name: draft.array(name) for name in names})
    arrays = {name: array for group in mapped for name, array in group.items()}
    columns = (*planned.columns, *planned.static)
    counts = {column.name: ColumnCounts.of(np.zeros(0), column) for column in columns}
    deciding: dict[str, list[Deciding]] = {column.name: [] for column in planned.static}
    first = _decode(work, keys, units_of_keys(work, keys), of_keys, {}) if of_keys else ()
    second = _decode(work, keys, work.scanned.units, [*others, *planned.static], arrays)
    for more, rows_of_static in chain(first, second):
        for name, of_bundle in more.items():
            counts[name] += of_bundle
        for name, rows in rows_of_static:
            deciding[name].append(rows)
            if (
                sum(len(part[0]) for part in deciding[name]) > 4 * len(keys.entities) + _DECIDING
            ):  # few per entity are enough
                deciding[name] = [together(deciding[name])]
    static_values = {
        column.name: _static_values(work, keys, column, deciding[column.name]) for column in planned.static
    }
    for column in planned.columns:
        counts[column.name] = _renumber(work, column, counts[column.name])
    return counts, {name: (v, replace(c, nulls=counts[name].nulls)) for name, (v, c) in static_values.items()}


def _renumber(work: Work, column: Column, counts: ColumnCounts) -> ColumnCounts:
    """Give the texts of a column their codes in ascending order; returns the counts of these."""
    vocabulary, draft = work.decoders[column.name].vocabulary, work.draft
    new_codes = None if vocabulary is None else vocabulary.renumbering()
    if new_codes is None:
        return counts
    renumbered = ColumnCounts(nulls=counts.nulls)
    for start, stop in blocks(0, work.planned.rows):
        codes = new_codes[draft.read(column.name, start, stop - start)]
        draft.write(column.name, start, codes)
        renumbered += ColumnCounts.of(codes, column)
    return renumbered


def _static_values(work: Work, keys: Keys, column: Column, deciding: list[Deciding]) -> _Counted:
    """The values of a static column and their counts; entities without rows have that of a row without values."""
    nulls = [pa.nulls(1, work.scanned.schema.field(member).type) for member in column.members]
    place, decoder, empty = "", work.decoders[column.name], None
    if work.planned.entity and not keys.has_rows.all():
        place = f"entities of like= without rows, such as {keys.entities[int(keys.has_rows.argmin())]!r}"
        empty, _ = decoder.decode(nulls, place)
    names = [*(_names_of(column, decoder) or ())]
    values = values_of(column, deciding, empty, work.scanned, keys.entities, names)
    new_codes = None if decoder.vocabulary is None else decoder.vocabulary.renumbering()
    values = values if new_codes is None else new_codes[values]
    return values, ColumnCounts.of(values, column)


def _decode(
    work: Work, keys: Keys, units: Sequence[Unit], columns: Sequence[Column], arrays: _Arrays
) -> Iterator[_Decoded]:
    """Decode several bundles at a time, or several columns of a large bundle where there are few."""

    def decode(job: _Job, go_on: Callable[[], None]) -> list[_Decoded]:
        return each_or_all(job[0], lambda bundle: _decode_bundle(work, keys, (bundle, job[1]), arrays, go_on))

    parts = bundles(units)
    count = max(len(parts), 1)
    worth = work.planned.rows // count * len(columns) // _WORTH_A_THREAD
    shares = min(len(columns), 1 if worth <= 1 else min(worth, -(-threads() // count)))
    jobs = [(part, columns[share::shares]) for part in parts for share in range(shares)]
    return chain.from_iterable(in_threads(jobs, decode))


def _decode_bundle(work: Work, keys: Keys, job: _Job, arrays: _Arrays, go_on: Callable[[], None]) -> _Decoded:
    bundle, columns = job
    names = list(dict.fromkeys(member for column in columns for member in column.members))
    counts, deciding = dict[str, ColumnCounts](), list[tuple[str, Deciding]]()
    with damage_named(bundle[0], names):
        for row, batch in read_bundle(bundle, names):
            go_on()
            end, nbytes = row + batch.num_rows, 0
            places = None if keys.places is None or not arrays else keys.places[row:end]
            for column in columns:
                members = [batch.column(names.index(member)) for member in column.members]
                values, nulls = work.decoders[column.name].decode(members, bundle[0].place)
                more = ColumnCounts.of(values, column, nulls)
                counts[column.name] = counts[column.name] + more if column.name in counts else more
                if column in work.planned.static:
                    rows, codes = np.arange(row, end), _entities(keys, row, end)
                    deciding.append((column.name, deciding_rows(rows, codes, bits_of(values, column))))
                elif places is None:
                    work.draft.write(column.name, row, values)
                else:
                    arrays[column.name][places] = values
                nbytes += values.nbytes
            work.progress.add(batch.num_rows * sum(len(column.members) for column in columns), nbytes)
    return counts, deciding


def _entities(keys: Keys, start: int, stop: int) -> Int64s:
    """The entities of rows of the source."""
    if keys.places is None:
        return entities_between(keys.offsets, start, stop)
    return np.searchsorted(keys.offsets, keys.places[start:stop], "right") - 1


def _info(work: Work, keys: Keys, counts: Mapping[str, ColumnCounts], carried: Sequence[Column]) -> StashInfo:
    planned, time, known, entity = work.planned, None, None, None
    if planned.time:
        checksum = keys.checksums["__time"]
        time = TimeInfo(planned.time.members[0], *_clock_and_range(planned.time, keys), keys.repeats, checksum)
    if planned.known:
        facts = planned.duplicates, keys.known_first, keys.checksums["__known"]
        expression = planned.expressions.get(planned.known.members[0])
        known = KnownInfo(str(planned.known_name), *_clock_and_range(planned.known, keys), *facts, expression)
    if planned.entity:
        entity = planned.entity.members if planned.entity.shape else planned.entity.members[0]
    columns, static = (
        tuple(with_counts(column, counts[column.name]) for column in part)
        for part in (planned.columns, (*planned.static, *planned.joined))
    )
    members = {member for column in columns for member in column.members}
    expressions = tuple((name, text) for name, text in planned.expressions.items() if name in members)
    return StashInfo(planned.rows, columns, (*static, *carried), entity, time, known, expressions, planned.frequency)


def _clock_and_range(times: Column, keys: Keys) -> tuple[str | None, str | None, int | None, int | None]:
    counts = keys.counts[times.name]
    low, high = (None if at is None else int(at) for at in (counts.low, counts.high))
    return times.unit, times.zone, low, high
