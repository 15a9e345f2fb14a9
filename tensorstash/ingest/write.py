"""Decode a source into a segment: first the keys, which determine the place of each row, then the columns."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import torch

from tensorstash.columns.codec import Ascending
from tensorstash.columns.column import Column, with_counts, with_more
from tensorstash.columns.info import StashInfo, to_header
from tensorstash.columns.number_texts import look_like_numbers
from tensorstash.common.calendar import Calendar
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.progress import Progress, bar_of
from tensorstash.common.text import counted
from tensorstash.common.threads import in_threads, threads
from tensorstash.ingest.bundles import Arrays, Job, bundles, each_batch
from tensorstash.ingest.carried import carried_column, values_like
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.keys import Keys, read_keys, write_vocabulary
from tensorstash.ingest.memory import check_columns, check_static
from tensorstash.ingest.row_order import blocks, streaks_between
from tensorstash.ingest.static import Deciding, Settled, StaticColumn, bits_of, deciding_rows, join_table
from tensorstash.segments.draft import Draft
from tensorstash.segments.limits import Limit
from tensorstash.stash.header import CALENDAR, MONTH_DAYS
from tensorstash.stash.month_days import LAST, kept_days
from tensorstash.stash.stash import Stash

_WORTH_A_THREAD = 1 << 20  # values: to decode fewer takes less time than to start a thread and wait for it


# of a batch: a column with its counts, and of a static column the rows that decide
_Decoded = tuple[Column, Deciding | None]


def write_load(
    choice: Choice,
    fd: int | None,
    limits: Sequence[Limit],
    *,
    on_disk: bool = False,
    key: str | None = None,
    progress: bool | None,
) -> tuple[Draft, tuple[str, ...]]:
    """Write the whole segment of a load, if the limits allow, and collect the warnings for its user.

    It goes into the empty file `fd`, or into a new unnamed file.
    """
    check_columns(choice.nbytes, choice.source.label, limits, on_disk)
    tensors = [(column.name, column.dtype, (choice.rows, *column.shape)) for column in choice.stored]
    draft = Draft(tensors, choice.header_bytes, fd, on_disk)
    read = (*choice.columns, *choice.static, choice.entity, *choice.times)
    values = choice.rows * sum(len(column.members) for column in read if column)
    decoders = {column.name: decoder_of(column) for column in (*choice.columns, *choice.static, *choice.joined)}
    with bar_of(choice.rows, "loading", progress) as bar:
        done = Progress(bar, values)
        keys = read_keys(choice, draft, done)
        check_static((*choice.static, *choice.joined, *choice.carried), len(keys.entities), choice.source.label)
        joined, notes = join_table(choice.table, keys, decoders) if choice.table is not None else ([], ())
        columns, of_rows = _decode_columns(choice, keys, draft, decoders, done)
    for column in columns:
        write_vocabulary(draft, column.name, decoders[column.name].names())
    like = choice.request.like
    carried = [carried_column(column, like, keys.entities) for column in choice.carried if like is not None]
    by_name = {found.column.name: found for found in (*of_rows, *joined, *carried)}
    static = [by_name[name] for name in choice.request.carried or by_name]  # in the order of `like`
    for column, values_of_entities, names in static:
        draft.blob(column.name, values_of_entities, column.dtype)
        write_vocabulary(draft, column.name, names)
    if like is not None and choice.time is not None:
        _carry_days(draft, choice.time, like, len(keys.entities))
    if isinstance(choice.step, Calendar):
        draft.blob(CALENDAR, choice.step.times, torch.int64)
    draft.seal(to_header(_info(choice, keys, columns, [column for column, *_ in static])), key)
    return draft, (*notes, *_warnings(choice, decoders))


def _carry_days(draft: Draft, time: Column, like: Stash, entities: int) -> None:
    """Write the days of the month of `like=`, which its rows had; of other entities none is known."""
    if like.clock == Clock(time.unit, time.zone) and (days := kept_days(like)) is not None:
        days = np.append(days, np.full(entities - len(days), LAST, np.int8))
        draft.blob(MONTH_DAYS, days, torch.int8)


def _warnings(choice: Choice, decoders: Mapping[str, Decoder]) -> Iterator[str]:
    of_table = "" if choice.table is None else choice.table.strangers
    yield from filter(None, (choice.strangers, of_table, choice.untimed))
    for name, decoder in decoders.items():
        if decoder.dropped:
            values, texts = zip(*decoder.dropped)
            yield (
                f"unknown='drop' takes texts that like= lacks as missing: {counted(sum(values), 'value')} of {name!r}, "
                f"such as {min(texts)!r}."
            )
    labels = {c.name for c in choice.columns if choice.entity and c.members[0] in choice.entity.members}
    for column in (*choice.columns, *choice.static, *choice.joined):
        name = column.name
        # texts that `like=` has were warned of when it was loaded
        is_new = isinstance(column.codec, Ascending) and column.codec.known is None
        if is_new and name not in labels and look_like_numbers(decoders[name].names() or ()):
            yield (
                f"Column {name!r} is text, which is stored as codes, but most of its distinct values read as numbers. "
                f"Load the numbers: ts.column(pl.col({name!r}).cast(pl.Float64, strict=False)), where other texts "
                'become NaN. Before the cast, .str.replace(",", ".") reads a decimal comma, .str.replace_all(",", "") '
                "commas between thousands. If they are labels, give them as vocabulary=."
            )


def _decode_columns(
    choice: Choice, keys: Keys, draft: Draft, decoders: Mapping[str, Decoder], progress: Progress
) -> tuple[list[Column], list[StaticColumn]]:
    """Decode the columns into the draft; returns them with their counts, and the static ones with their values."""
    names = [] if keys.places is None else [column.name for column in choice.columns]
    # memory is allocated in threads
    moved = dict(zip(names, in_threads(names, lambda name, _: draft.array(name))))
    settled = {c.name: Settled(c, choice.source, keys.entities, decoders[c.name]) for c in choice.static}

    def decode(place: str, row: int, arrays: Arrays, columns: Sequence[Column]) -> list[_Decoded]:
        found, stop = list[_Decoded](), row + len(next(iter(arrays.values())))
        # numpy would convert them once more for each column
        places = None if keys.places is None else keys.places[row:stop].astype(np.intp)
        for column in columns:
            values, nulls = decoders[column.name].decode([arrays[member] for member in column.members], place)
            deciding = None
            if column.name in settled:
                deciding = deciding_rows(np.arange(row, stop), _entities(keys, row, stop), bits_of(values, column))
            elif places is None:
                draft.write(column.name, row, values)
            else:
                moved[column.name][places] = values
            found.append((with_counts(column, values, nulls), deciding))
        return found

    # as of no rows
    whole = {column.name: with_counts(column, np.zeros(0)) for column in (*choice.columns, *choice.static)}
    for column, deciding in chain.from_iterable(each_batch(_jobs(choice), decode, progress)):
        whole[column.name] = with_more(whole[column.name], column)
        if deciding is not None:
            settled[column.name].add(deciding)
    columns = [_renumbered(choice.rows, draft, decoders[c.name], whole[c.name]) for c in choice.columns]
    like = choice.request.like
    return columns, [settled[c.name].values(whole[c.name].nulls, values_like(c, like)) for c in choice.static]


def _jobs(choice: Choice) -> list[Job]:
    """All columns of each bundle, or shares of them where there are few bundles, and those large."""
    parts, columns = bundles(choice.source), (*choice.columns, *choice.static)
    count = max(len(parts), 1)
    worth = choice.rows // count * len(columns) // _WORTH_A_THREAD
    shares = min(len(columns), 1 if worth <= 1 else min(worth, -(-threads() // count)))
    return [(part, columns[share::shares]) for part in parts for share in range(shares)]


def _renumbered(rows: int, draft: Draft, decoder: Decoder, column: Column) -> Column:
    """Give the texts of a column their codes in ascending order; returns it with the counts of these."""
    new_codes = decoder.renumbering()
    if new_codes is None:
        return column
    column = with_counts(column, np.zeros(0), column.nulls)
    for start, stop in blocks(rows):
        codes = new_codes[draft.read(column.name, start, stop - start)]
        draft.write(column.name, start, codes)
        column = with_more(column, with_counts(column, codes))
    return column


def _entities(keys: Keys, start: int, stop: int) -> Int64s:
    """The entities of rows of the source."""
    if keys.places is None:
        return streaks_between(keys.offsets, start, stop)
    return np.searchsorted(keys.offsets, keys.places[start:stop], "right") - 1


def _info(choice: Choice, keys: Keys, columns: Sequence[Column], static: Sequence[Column]) -> StashInfo:
    members = {member for column in columns for member in column.members}
    expressions = tuple((name, text) for name, text in choice.expressions.items() if name in members)
    return StashInfo(
        rows=choice.rows,
        columns=tuple(columns),
        static=tuple(static),
        entity=choice.request.entity,
        time=keys.time,
        known=keys.known,
        expressions=expressions,
        frequency=choice.written_step,
    )
