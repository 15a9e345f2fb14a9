"""The order of the rows of a stash: grouped by entity, ordered by time, each time once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import inverse
from tensorstash.ingest.memory import SORT_BYTES
from tensorstash.ingest.plan import Plan
from tensorstash.sources.scan import Scan

_BLOCK = 1 << 17  # rows looked at together
Ranks = NDArray[np.signedinteger[Any]]  # of 32 bits, if the number of rows allows it


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A time that occurs twice in an entity, and the two rows of the source."""

    entity: int
    time: int
    rows: tuple[int, int]


class Arranger:
    """Takes the entities of all rows in the order of the source, and computes the place of each row in the stash.

    As long as rows are grouped by entity, as in most sources, it keeps only counts per entity.
    """

    def __init__(self, rows: int, check: Callable[[int], None], entities: int, *, repeated: bool = False) -> None:
        """`check(row_bytes)` raises an error if there is no memory to bring rows into order.

        `entities` is how many there are in any case; others come with the rows. With `repeated`, an entity may have
        several rows of one time, which stay in the order of the source.
        """
        self.rows = rows
        self._check = check
        self._allowed = repeated
        self.repeats = False  # whether an entity has several rows of one time
        self._taken = 0
        self._known = 0  # number of entities; `_counts` has room for more
        self._counts: Int64s = np.zeros(0, np.int64)  # the rows of each entity so far
        # if rows are grouped: the entities in the order of their rows, and where in the source each one begins
        self._sequence: Int64s = np.zeros(0, np.int64)
        self._begins: Int64s = np.zeros(0, np.int64)
        self._groups: list[Int32s] = []  # the entities in order, until they are joined
        # if not: the entity of each row, and its place within the entity
        self._codes: Int32s | None = None
        self._ranks: Ranks | None = None
        self.arranged = True  # whether the rows of the stash are in the order of the source
        self.offsets: Int64s = np.zeros(1, np.int64)
        self._grow(entities)

    def add(self, codes: Int32s) -> None:
        """Take the entities of the next rows, numbered in any way."""
        if not len(codes):
            return
        self._grow(int(codes.max()) + 1)
        starts = _starts(codes)
        if self._codes is None and not self._takes_groups(codes[starts]):
            self._expand()
        if self._codes is not None and self._ranks is not None:
            order = _by_code(codes)
            codes = codes[order]
            starts = _starts(codes)
            ranks = np.arange(len(codes)) + np.repeat(self._counts[codes[starts]] - starts, _sizes(starts, len(codes)))
            self._codes[self._taken + order] = codes
            self._ranks[self._taken + order] = ranks
        self._counts[codes[starts]] += _sizes(starts, len(codes))
        self._taken += len(codes)

    def _takes_groups(self, groups: Int32s) -> bool:
        """Take the next groups of rows, if each of them is all that has come of its entity."""
        new = groups[1:] if self._groups and groups[0] == self._groups[-1][-1] else groups
        place = np.empty(self._known, np.int64)  # the system gives memory only for what is written
        place[new] = np.arange(len(new))
        if self._counts[new].any() or (place[new] != np.arange(len(new))).any():
            return False
        if len(new):
            self._groups.append(new)
        return True

    def _grow(self, entities: int) -> None:
        self._known = max(self._known, entities)
        if self._known > len(self._counts):  # at least double: growing by one would take quadratic time
            self._counts = np.append(self._counts, np.zeros(self._known, np.int64))

    def _join_groups(self) -> None:
        self._sequence = np.concatenate([np.zeros(0, np.int64), *self._groups])
        self._begins = np.append(0, np.cumsum(self._counts[self._sequence]))[:-1]

    def _expand(self) -> None:
        """From now on keep codes and ranks of all rows, also of the earlier ones, which were grouped."""
        self._check(SORT_BYTES)
        self._join_groups()
        codes, ranks = np.empty(self.rows, np.int32), self._empty_ranks()
        for start, stop in self._blocks(0, self._taken):
            groups, sizes = self._groups_of(start, stop)
            codes[start:stop] = np.repeat(self._sequence[groups], sizes)
            ranks[start:stop] = np.arange(start, stop) - np.repeat(self._begins[groups], sizes)
        self._codes, self._ranks = codes, ranks

    def _groups_of(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """The groups that rows of a grouped source belong to, and how many of the rows."""
        first = max(int(np.searchsorted(self._begins, start, "right")) - 1, 0)
        end = int(np.searchsorted(self._begins, stop, "left"))
        borders = np.clip(np.append(self._begins[first:end], stop), start, stop)
        return np.arange(first, end), np.diff(borders)

    def _empty_ranks(self) -> Ranks:
        return np.empty(self.rows, np.int32 if self.rows <= np.iinfo(np.int32).max else np.int64)

    def finish(self, order: Int64s, times: Int64s | None) -> Duplicate | None:
        """Bring the times from source order into stash order; returns a time that occurs twice, if there is one.

        `order` has the entities, as they were numbered, in the order of the stash.
        """
        numbers = inverse(order)
        self.offsets = np.append(0, np.cumsum(self._counts[order]))
        if self._codes is None:
            self._join_groups()
            self._sequence = numbers[self._sequence]
            self.arranged = bool((self._sequence[1:] > self._sequence[:-1]).all())
        else:
            self.arranged = False
            for start, stop in self._blocks(0, self.rows):
                self._codes[start:stop] = numbers[self._codes[start:stop]]
        if times is None:
            return None
        if not self.arranged:
            self._move(times)
        if self._in_time(times, 0, self.rows):
            return None
        if self._codes is None:
            self._check(SORT_BYTES)
        return self._sort(times)

    def _move(self, times: Int64s) -> None:
        if self._codes is None:
            self._check(times.itemsize)
        source = times.copy()
        for start, stop in self._blocks(0, self.rows):
            times[self.places(start, stop)] = source[start:stop]

    def _blocks(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        return ((start, min(start + _BLOCK, high)) for start in range(low, high, _BLOCK))

    def _in_time(self, times: Int64s, low: int, high: int) -> bool:
        """Whether the times of each entity ascend between two places in the stash; equal ones are noted."""
        for start, stop in self._blocks(low, high - 1):
            earlier, later = times[start:stop], times[start + 1 : stop + 1]
            same_entity = np.ones(stop - start, np.bool_)
            first, end = np.searchsorted(self.offsets, [start + 1, stop + 1])
            same_entity[self.offsets[first:end] - start - 1] = False
            self.repeats |= bool((same_entity & (later == earlier)).any())
            if (same_entity & (later < earlier)).any():
                return False
        return self._allowed or not self.repeats

    def _sort(self, times: Int64s) -> Duplicate | None:
        """Sort the times of the entities that are out of order; rows are already grouped by entity."""
        ranks = self._empty_ranks()  # the rank by time of each place within its entity
        for first, end in self._stretches():
            low, high = int(self.offsets[first]), int(self.offsets[end])
            sizes = np.diff(self.offsets[first : end + 1])
            in_order = np.arange(high - low) - np.repeat(self.offsets[first:end] - low, sizes)
            if self._in_time(times, low, high):
                ranks[low:high] = in_order
                continue
            codes = np.repeat(np.arange(end - first), sizes)
            order = _by_time(codes, times[low:high])
            ascending = times[low:high][order]
            same = (ascending[1:] == ascending[:-1]) & (codes[1:] == codes[:-1])
            self.repeats |= bool(same.any())
            if same.any() and not self._allowed:
                at = int(same.argmax())
                rows = self._source_row(low + int(order[at])), self._source_row(low + int(order[at + 1]))
                return Duplicate(first + int(codes[at]), int(ascending[at]), rows)
            ranks[low + order] = in_order
            times[low:high] = ascending
        of_rows = self._empty_ranks() if self._ranks is None else self._ranks
        for start, stop in self._blocks(0, self.rows):
            of_rows[start:stop] = ranks[self.places(start, stop)]
        self._ranks, self.arranged = of_rows, False
        return None

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Ranges of entities (first, end) with about a block of rows in total, or a single larger entity."""
        first = 0
        while first < self._known:
            end = int(np.searchsorted(self.offsets, self.offsets[first] + _BLOCK, "right")) - 1
            yield first, max(end, first + 1)
            first = max(end, first + 1)

    def _source_row(self, place: int) -> int:
        """The source row at a place in the stash; only valid before sorting."""
        matches = ((start, self.places(start, stop) == place) for start, stop in self._blocks(0, self.rows))
        return next(start + int(is_there.argmax()) for start, is_there in matches if is_there.any())

    def codes(self, start: int, stop: int) -> Int32s:
        """`(stop - start,)`, the entities of the rows of the source from `start` on."""
        if self._codes is not None:
            return self._codes[start:stop]
        groups, sizes = self._groups_of(start, stop)
        return np.repeat(self._sequence[groups].astype(np.int32), sizes)

    def places(self, start: int, stop: int) -> Int64s:
        """`(stop - start,)`, the places in the stash of the source rows from `start` on, as far as they are known."""
        if self._ranks is not None:
            return self.offsets[self.codes(start, stop)] + self._ranks[start:stop]
        groups, sizes = self._groups_of(start, stop)
        return np.arange(start, stop) + np.repeat(self.offsets[self._sequence[groups]] - self._begins[groups], sizes)


def _starts(codes: Int32s) -> Int64s:
    return np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))


def _sizes(starts: Int64s, rows: int) -> Int64s:
    return np.diff(starts, append=rows)


def _by_code(codes: Int32s) -> Int64s:
    """The stable order by code. numpy sorts 16-bit integers by radix, twenty times as fast as wider integers."""
    if codes.max() < 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    order = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    return order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def _by_time(codes: Int64s, times: Int64s) -> Int64s:
    """The stable order by code, then time. Codes are ascending.

    `sort` is three times as fast as `argsort`, so the row is packed into the sorted integer if there is room for it.
    """
    low, high = int(times.min()), int(times.max())
    shift = len(times).bit_length()
    if (int(codes[-1]) + 1) * (high - low + 1) >> (62 - shift):
        return np.lexsort((times, codes))
    return np.sort(((codes * (high - low + 1) + (times - low)) << shift) | np.arange(len(times))) & ((1 << shift) - 1)


def duplicate_time(planned: Plan, scanned: Scan, entity: object, duplicate: Duplicate) -> DataError:
    """The error for a time that occurs twice in an entity."""
    assert planned.time is not None
    when = Clock(planned.time.unit, planned.time.zone).format(duplicate.time)
    whose = f"entity {entity!r}" if planned.entity else "the series (no entity= was given)"
    first, second = map(scanned.name_row, duplicate.rows)
    return DataError(
        f"A time occurs once in each entity; {whose} has {planned.time.members[0]} {when} in source rows {first} and "
        f"{second}. Drop one, name the column that distinguishes the series as entity=, or keep events with "
        'repeated="keep".'
    )
