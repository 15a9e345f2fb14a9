"""The entity and the time of every row: read before the other columns, and written as entities, offsets and times."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tensorstash.columns.codec import Ascending
from tensorstash.columns.column import Column
from tensorstash.columns.info import TimeInfo
from tensorstash.columns.name_list import Names, Part, Texts
from tensorstash.columns.types import is_text
from tensorstash.common.calendar import Calendar
from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.progress import Progress
from tensorstash.errors import DataError
from tensorstash.ingest.bundles import Arrays, bundles, each_batch
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.codes import as_arrow, names_of, numbered
from tensorstash.ingest.entities import Entities, without_nulls
from tensorstash.ingest.memory import check_sorting
from tensorstash.ingest.row_order import (
    Integers,
    Streaks,
    ascend,
    by_entity,
    distinct,
    move_to_places,
    offsets_of,
    places_after,
    sort,
    streaks_of,
)
from tensorstash.ingest.values import values
from tensorstash.segments.draft import Draft
from tensorstash.sources.evaluate import WHICH_HOUR
from tensorstash.stash.header import times_checksum
from tensorstash.stash.steps import check_in_calendar

_SUNDAY = 3  # of the days since 1970, which began on a Thursday, modulo 7


@dataclass(frozen=True, slots=True)
class Keys:
    """The entities of the rows, and where in the stash each row of the source belongs."""

    entities: Sequence[Any]  # tuples for several entity columns, `[None]` for none
    offsets: Int64s  # `(entities + 1,)`, where the rows of each begin in the stash
    places: Integers | None  # `(rows,)`; `None`: the rows of the source come in the order of the stash
    time: TimeInfo | None
    known: TimeInfo | None


def read_keys(choice: Choice, draft: Draft, progress: Progress) -> Keys:
    """Decode the keys, and write entities, offsets and times to the segment."""
    entities = Entities(choice.entity) if choice.entity else None
    edges, codes = _read(choice, draft, progress, entities)
    names, numbers = ([None], np.zeros(1, np.int32)) if entities is None else _write_entities(choice, draft, entities)
    streaks = Streaks(edges, numbers.astype(np.int32)[codes])
    offsets = offsets_of(streaks, len(names))
    times = {column.name: draft.array(column.name) for column in choice.times}
    places, repeats, known_first = _in_order(choice, streaks, offsets, names, [*times.values()])
    if isinstance(choice.step, Calendar):
        check_in_calendar(choice.step, times["__time"], offsets, names.__getitem__)
    draft.blob("__offsets", offsets, torch.int64)
    time, known = (_info_of(column, times) for column in (choice.time, choice.known))
    time = time and replace(time, duplicates=repeats)
    if known is not None:
        known = replace(
            known,
            source=str(choice.request.known_name),
            events=choice.request.duplicates,
            is_first=known_first,
            expression=choice.expressions.get(known.source),
        )
    return Keys(names, offsets, places, time, known)


def _info_of(column: Column | None, times: Mapping[str, Int64s]) -> TimeInfo | None:
    """What the header of a stash says of a column of times, which are in its order."""
    if column is None:
        return None
    array = times[column.name]
    low, high = (int(array.min()), int(array.max())) if len(array) else (None, None)
    return TimeInfo(column.members[0], column.unit, column.zone, low, high, times_checksum(array))


def _in_order(
    choice: Choice, streaks: Streaks, offsets: Int64s, names: Sequence[Any], times: list[Int64s]
) -> tuple[Integers | None, bool, bool]:
    """Bring `times` into the order of the stash, in place; returns the places of rows, `repeats` and `known_first`."""
    rows = choice.rows
    places = by_entity(streaks, offsets)
    if not times:
        return places, False, False
    if places is not None:
        check_sorting(rows, choice.source.label)
        for key in times:
            move_to_places(key, places)
    keys, repeats, known_first = times, False, False
    if len(times) > 1:
        check_sorting(int(np.diff(offsets).max(initial=0)), choice.source.label)
        pairs, versions = (distinct(key, offsets) for key in times)
        # the fewer known times an entity has, the more rows became known together: they then stand side by side
        repeats, known_first = pairs < rows, not choice.request.duplicates and versions <= pairs
        keys = times[::-1] if known_first else times
    ascending, equal = ascend(keys, offsets)
    if not ascending:
        check_sorting(rows, choice.source.label)
        moved = sort(keys, offsets, streaks.edges.dtype)
        places = moved if places is None else places_after(places, moved)
        _, equal = ascend(keys, offsets)
    if equal is not None and not choice.request.duplicates:
        raise _duplicate_time(choice, places, equal, names[int(np.searchsorted(offsets, equal, "right")) - 1], times)
    return places, repeats or equal is not None, known_first


def _read(choice: Choice, draft: Draft, progress: Progress, entities: Entities | None) -> Streaks:
    """Write the times to the draft; returns the streaks of entities, as they are numbered."""
    rows = choice.rows
    integer = np.int32 if rows <= np.iinfo(np.int32).max else np.int64

    def write_times(place: str, row: int, arrays: Arrays, _: object) -> Streaks | None:
        """Write the times of a batch; returns its streaks, if there are entities."""
        given = {name: without_nulls(array, name, choice.source, row) for name, array in arrays.items()}
        for column in choice.times:
            ticks, _ = values([given[column.members[0]]], column, place)
            draft.write(column.name, row, ticks)
        if entities is None:
            return None
        edges, codes = streaks_of(entities.encode([given[member] for member in entities.column.members]))
        return Streaks((row + edges[:-1]).astype(integer), codes)

    columns = [column for column in (choice.entity, *choice.times) if column]
    jobs = [(bundle, columns) for bundle in (bundles(choice.source) if columns else ())]
    edges, codes, streak_count, is_grouped = list[Integers](), list[Int32s](), 0, True
    for streaks in filter(None, each_batch(jobs, write_times, progress)):
        edges.append(streaks.edges)
        codes.append(streaks.entities)
        streak_count += len(streaks.entities)
        if is_grouped and entities is not None and streak_count > len(entities) + len(codes):
            # grouped rows make a streak for each entity, and one for each batch in which an entity goes on: these are
            # not grouped, so is there room for more streaks?
            check_sorting(rows, choice.source.label)
            is_grouped = False
    if entities is None and rows:  # one series that all rows are of
        edges, codes = [np.zeros(1, integer)], [np.zeros(1, np.int32)]
    return Streaks(np.concatenate([*edges, np.array([rows], integer)]), np.concatenate([*codes, np.zeros(0, np.int32)]))


def _duplicate_time(choice: Choice, places: Integers | None, at: int, entity: object, times: list[Int64s]) -> DataError:
    """The error for a time that occurs twice in an entity, or for two versions of it that became known together."""
    time = choice.times[0]
    clock, name = Clock(time.unit, time.zone), time.members[0]
    whose = f"entity {entity!r}" if choice.entity else "the series (no entity= was given)"
    rows = [at, at + 1] if places is None else [int((places == place).argmax()) for place in (at, at + 1)]
    first, second = map(choice.source.name_row, rows)
    rule, twice = "A time occurs once in each entity", f"{name} {clock.format(int(times[0][at]))}"
    if choice.known is not None:
        since = Clock(choice.known.unit, choice.known.zone).format(int(times[1][at]))
        rule, twice = (
            "The versions of a time have different known times",
            f"{twice} with {choice.request.known_name} {since}",
        )
    remedy = _files_remedy(choice, rows) + _zone_remedy(choice, clock, int(times[0][at]))
    return DataError(
        f"{rule}; {whose} has {twice} in source rows {first} and {second}. {remedy}{'Else drop' if remedy else 'Drop'} "
        f"one, name the column that distinguishes the series as "
        'entity=, or keep events with duplicates="keep".'
    )


def _files_remedy(choice: Choice, rows: Sequence[int]) -> str:
    """What makes a series of each file, if a time stands in two files and nothing tells their series."""
    first, second = (re.sub(r", (row group|record batch) \d+$", "", choice.source.unit_of(row).place) for row in rows)
    if choice.entity is not None or first == second:
        return ""
    files = "dataset.files" if choice.source.label.startswith("the pyarrow ") else "them"
    part = "parent" if os.path.basename(first) == os.path.basename(second) else "stem"
    return f"If each file is a series, load {files} with entity=ts.path({part!r}). "


def _zone_remedy(choice: Choice, clock: Clock, time: int) -> str:
    """What to do if the time is in the night of a Sunday, when clocks without a zone may have been set back."""
    day, within = divmod(time, clock.day)
    if clock.unit in (None, "d") or clock.zone is not None or day % 7 != _SUNDAY or not 0 < within < clock.day // 6:
        return ""
    names = [name for column in (choice.entity, choice.time) if column is not None for name in column.members]
    return (
        "If clocks were set back in that night, give the times their zone with polars: "
        f"pl.col({names[-1]!r}).dt.replace_time_zone('Europe/Berlin', ambiguous="
        f"{WHICH_HOUR.format(', '.join(map(repr, names)))}). "
    )


def _write_entities(choice: Choice, draft: Draft, entities: Entities) -> tuple[Names, Int64s]:
    """Write the entities of `like=` and those that it lacks; returns them, and the number of each as it came."""
    entity = entities.column
    assert isinstance(entity.codec, Ascending)
    known, found = entity.codec.known, names_of(map(as_arrow, entities.values()), are_tuples=bool(entity.shape))
    numbers, names = numbered(known, found)
    if choice.request.unknown == "error" and known is not None and len(names) > len(known):
        raise DataError(
            f"unknown='error' takes only entities that like= has; {len(names) - len(known):,} of the source are "
            f"unknown, such as {names[len(known)]!r}. Leave them out with unknown='drop', or take 'keep'."
        )
    for k, (member, part) in enumerate(zip(entity.members, names.parts)):
        # without rows nothing tells integers
        is_typed = len(part) or is_text(choice.source.schema.field(member).type)
        typed = part if is_typed else np.empty(0, np.int64)
        write_names(draft, f"__entities.{k}" if entity.shape else "__entities", typed)
    return names, numbers


def write_vocabulary(draft: Draft, column: str, names: Sequence[Any] | None) -> None:
    """Write the names that the codes of a column stand for, if they stand for names."""
    if names is not None:
        (part,) = names.parts if isinstance(names, Names) else names_of([as_arrow(names)]).parts
        write_names(draft, f"{column}.__vocabulary", part)


def write_names(draft: Draft, name: str, names: Part) -> None:
    """Write integers, or texts as two blobs: their UTF-8 bytes, and the end of each text."""
    if isinstance(names, Texts):
        draft.blob(f"{name}.text", names.letters, torch.uint8)
        draft.blob(f"{name}.ends", names.bounds[1:], torch.int64)
    else:
        draft.blob(f"{name}.integers", names, torch.uint64 if names.dtype == np.uint64 else torch.int64)
