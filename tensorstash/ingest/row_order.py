"""The order of the rows of a stash: grouped by entity, and ordered by time, or by time and known time."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s

_BLOCK = 1 << 17  # rows looked at together
Integers = NDArray[np.signedinteger[Any]]  # of 32 bits, if the number of rows allows it


class Streaks(NamedTuple):
    """Consecutive rows of one entity."""

    edges: Integers  # the first row of each streak, and behind the last one the number of rows
    entities: Int32s  # of each streak


def streaks_of(entities: Int32s) -> Streaks:
    """The streaks of some rows. Most sources are grouped by entity, so they have few."""
    starts = _starts(entities)
    return Streaks(np.append(starts, len(entities)), entities[starts])


def offsets_of(streaks: Streaks, count: int) -> Int64s:
    """`(count + 1,)`, where the rows of each entity begin in a stash."""
    edges, entities = streaks
    ends = np.zeros(count + 1, np.int64)
    for first, end in blocks(len(entities)):  # as int64: `add.at` takes twenty times as long if it has to cast
        np.add.at(ends, entities[first:end].astype(np.int64) + 1, np.diff(edges[first : end + 1].astype(np.int64)))
    return np.cumsum(ends, out=ends)


def by_entity(streaks: Streaks, offsets: Int64s) -> Integers | None:
    """`(rows,)`, the place of each row where rows are grouped by entity; `None` if they come so."""
    edges, entities = streaks
    if (entities[1:] >= entities[:-1]).all():
        return None
    places = np.empty(offsets[-1], edges.dtype)
    free = offsets[:-1].copy()  # the next place of each entity
    for start, stop in blocks(len(places)):
        codes = entities[streaks_between(edges, start, stop)]
        order = _by_code(codes)
        codes = codes[order]
        firsts = _starts(codes)
        own, sizes = codes[firsts], np.diff(firsts, append=len(codes))
        places[start:stop][order] = np.repeat(free[own] - firsts, sizes) + np.arange(len(codes))
        free[own] += sizes
    return places


def move_to_places(key: Int64s, places: Integers) -> None:
    """Bring the values of rows to their places."""
    source = key.copy()
    for start, stop in blocks(len(key)):
        key[places[start:stop]] = source[start:stop]


def places_after(places: Integers, moved: Integers) -> Integers:
    """The places of rows, once the rows at each place have moved on; written over `places`."""
    for start, stop in blocks(len(places)):
        places[start:stop] = moved[places[start:stop]]
    return places


def sort(keys: Sequence[Int64s], offsets: Int64s, integer: np.dtype[Any]) -> Integers:
    """Sort the rows of each entity by the keys, stably; returns the new place of each place."""
    moved = np.empty(len(keys[0]), integer)
    for low, high, entities in _entity_blocks(offsets):
        order = _by_time(entities, keys[-1][low:high])
        for key in keys[-2::-1]:
            order = order[_by_time(entities, key[low:high][order])]
        for key in keys:
            key[low:high] = key[low:high][order]
        moved[low:high][order] = np.arange(low, high)
    return moved


def ascend(keys: Sequence[Int64s], offsets: Int64s) -> tuple[bool, int | None]:
    """Whether the rows of each entity ascend by the keys, and if they do, the first row that is equal to the next."""
    equal = None
    for start, stop in blocks(len(keys[0]) - 1):
        tied = np.ones(stop - start, np.bool_)
        first, end = np.searchsorted(offsets, [start + 1, stop + 1])
        tied[offsets[first:end] - start - 1] = False
        for key in keys:
            earlier, later = key[start:stop], key[start + 1 : stop + 1]
            if (tied & (later < earlier)).any():
                return False, None
            tied &= later == earlier
        equal = start + int(tied.argmax()) if equal is None and tied.any() else equal
    return True, equal


def distinct(key: Int64s, offsets: Int64s) -> int:
    """How many different pairs of an entity and a key there are."""
    count = 0
    for low, high, entities in _entity_blocks(offsets):
        values = key[low:high][_by_time(entities, key[low:high])]
        is_new = (values[1:] != values[:-1]) | (entities[1:] != entities[:-1])
        count += 1 + int(np.count_nonzero(is_new))
    return count


def streaks_between(edges: Integers, start: int, stop: int) -> Int64s:
    """`(stop - start,)`, the streak of each of these rows; offsets are the edges of one streak for each entity."""
    low, high = np.array([start, stop], edges.dtype)  # of one type, or numpy would convert all edges
    first, end = int(np.searchsorted(edges, low, "right")) - 1, int(np.searchsorted(edges, high, "left"))
    borders = np.clip(edges[first : end + 1], start, stop)
    return np.repeat(np.arange(first, end), np.diff(borders))


def blocks(rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, small enough for the cache."""
    return ((start, min(start + _BLOCK, rows)) for start in range(0, rows, _BLOCK))


def _entity_blocks(offsets: Int64s) -> Iterator[tuple[int, int, Int64s]]:
    """The rows of some entities, about a block of them, or of a larger one: the first and the end, and the entities."""
    first, rows = 0, int(offsets[-1])
    while offsets[first] < rows:
        end = max(int(np.searchsorted(offsets, offsets[first] + _BLOCK, "right")) - 1, first + 1)
        low, high = int(offsets[first]), int(offsets[end])
        if low < high:
            yield low, high, np.repeat(np.arange(end - first), np.diff(offsets[first : end + 1]))
        first = end


def _starts(codes: Int32s) -> Int64s:
    is_first = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=is_first[1:])  # numpy.diff(prepend=) takes forty times as long
    return np.flatnonzero(is_first)


def _by_code(codes: Int32s) -> Int64s:
    """The stable order by code. numpy sorts 16-bit integers by radix, twenty times as fast as wider integers."""
    if codes.max() < 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    order = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    return order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def _by_time(codes: Int64s, times: Int64s) -> Int64s:
    """The stable order by code, then time. Codes are ascending, and there is at least one.

    `sort` is three times as fast as `argsort`, so the row is packed into the sorted integer if there is room for it.
    """
    low, high = int(times.min()), int(times.max())
    shift = len(times).bit_length()
    if (int(codes[-1]) + 1) * (high - low + 1) >> (62 - shift):
        return np.lexsort((times, codes))
    return np.sort(((codes * (high - low + 1) + (times - low)) << shift) | np.arange(len(times))) & ((1 << shift) - 1)
