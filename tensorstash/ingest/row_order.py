"""The order of the rows of a stash: grouped by entity, ordered by time, each time once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import inverse
from tensorstash.ingest.memory import SORT_BYTES
from tensorstash.ingest.plan import Plan
from tensorstash.sources.scan import Scan

_BLOCK = 1 << 17  # rows looked at together


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A time that occurs twice in an entity, and the two rows of the source."""

    entity: int
    time: int
    rows: tuple[int, int]


class Arranger:
    """Takes the keys of all rows in the order of the source, and computes the place of each row in the stash.

    As long as rows are grouped by entity and ordered by time, as in most sources, it keeps only counts per entity.
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
        self._known = 0  # number of entities; the arrays below have room for more
        self._counts: Int64s = np.zeros(0, np.int64)  # the rows of each entity so far
        self._last: Int64s = np.zeros(0, np.int64)  # the time of each entity's last row
        self._late: Bools = np.zeros(
            0, np.bool_
        )  # whether a time was not later than the one before; of equal times if they are allowed: earlier
        # if rows are grouped: the entities in the order of their rows, and where in the source each one begins
        self._sequence: Int64s = np.zeros(0, np.int64)
        self._begins: Int64s = np.zeros(0, np.int64)
        self._groups: list[Int32s] = []  # the entities in order, until they are joined
        # if not: the entity of each row, and its place within the entity
        self._codes: Int32s | None = None
        self._ranks: Int32s | Int64s | None = None
        self.arranged = True  # whether the rows of the stash are in the order of the source
        self.offsets: Int64s = np.zeros(1, np.int64)
        self._grow(entities)

    def add(self, codes: Int32s, times: Int64s | None) -> None:
        """Take the entities of the next rows, numbered in any way, and their times."""
        if not len(codes):
            return
        self._grow(int(codes.max()) + 1)
        order = None
        starts = _starts(codes)
        if self._codes is None and not self._takes_groups(codes[starts]):
            self._codes, self._ranks = self._expanded()
        if self._codes is not None:
            order = _by_code(codes)
            codes, times = codes[order], None if times is None else times[order]
            starts = _starts(codes)
        if times is not None:
            self._watch(codes, times, starts)
        sizes, groups = np.diff(starts, append=len(codes)), codes[starts]
        if order is not None and self._codes is not None and self._ranks is not None:
            self._codes[self._taken + order] = codes
            self._ranks[self._taken + order] = np.arange(len(codes)) + np.repeat(self._counts[groups] - starts, sizes)
        self._counts[groups] += sizes
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
        if self._known > len(self._counts):
            more = self._known  # at least double: growing by one would take quadratic time
            self._counts = np.append(self._counts, np.zeros(more, np.int64))
            self._last = np.append(self._last, np.zeros(more, np.int64))
            self._late = np.append(self._late, np.zeros(more, np.bool_))

    def _watch(self, codes: Int32s, times: Int64s, starts: Int64s) -> None:
        """Mark the entities that have a row not later than the row before; rows of an entity come together here."""
        is_late = np.less if self._allowed else np.less_equal
        back = is_late(times[1:], times[:-1])
        back[starts[1:] - 1] = False
        self._late[codes[1:][back]] = True
        groups = codes[starts]
        self._late[groups] |= (self._counts[groups] > 0) & is_late(times[starts], self._last[groups])
        if self._allowed and not self.repeats:
            equal = times[1:] == times[:-1]
            equal[starts[1:] - 1] = False
            again = (self._counts[groups] > 0) & (times[starts] == self._last[groups])
            self.repeats = bool(equal.any() or again.any())
        self._last[groups] = times[np.append(starts[1:], len(times)) - 1]

    def _join_groups(self) -> None:
        self._sequence = np.concatenate([np.zeros(0, np.int64), *self._groups])
        self._begins = np.append(0, np.cumsum(self._counts[self._sequence]))[:-1]

    def _expanded(self) -> tuple[Int32s, "Int32s | Int64s"]:
        """Codes and ranks of all rows, filled in for the earlier rows, which were grouped."""
        self._check(SORT_BYTES)
        self._join_groups()
        codes, ranks = np.empty(self.rows, np.int32), self._empty_ranks()
        for start, stop in self._blocks(self._taken):
            groups, sizes = self._groups_of(start, stop)
            codes[start:stop] = np.repeat(self._sequence[groups], sizes)
            ranks[start:stop] = np.arange(start, stop) - np.repeat(self._begins[groups], sizes)
        return codes, ranks

    def _groups_of(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """The groups that rows of a grouped source belong to, and how many of the rows."""
        first = max(int(np.searchsorted(self._begins, start, "right")) - 1, 0)
        end = int(np.searchsorted(self._begins, stop, "left"))
        borders = np.clip(np.append(self._begins[first:end], stop), start, stop)
        return np.arange(first, end), np.diff(borders)

    def _empty_ranks(self) -> "Int32s | Int64s":
        small = self.rows <= np.iinfo(np.int32).max
        return np.empty(self.rows, np.int32) if small else np.empty(self.rows, np.int64)

    def finish(self, order: Int64s, open_times: Callable[[], Int64s | None]) -> Duplicate | None:
        """Bring the times from source order into stash order; returns a time that occurs twice, if there is one.

        `order` has the entities, as they were numbered, in the order of the stash.
        """
        numbers = inverse(order)
        self.offsets = np.append(0, np.cumsum(self._counts[order]))
        self._late = self._late[order]
        if self._codes is None:
            self._join_groups()
            self._sequence = numbers[self._sequence]
            self.arranged = bool((self._sequence[1:] > self._sequence[:-1]).all())
        else:
            self.arranged = False
            for start, stop in self._blocks(self.rows):
                self._codes[start:stop] = numbers[self._codes[start:stop]]
        is_late = bool(self._late.any())
        times = open_times() if is_late or not self.arranged else None
        if times is None:
            return None
        if self._codes is None:
            self._check(SORT_BYTES if is_late else times.itemsize)
        if not self.arranged:
            source = times.copy()
            for start, stop in self._blocks(self.rows):
                times[self.places(start, stop)] = source[start:stop]
            del source
        return self._sort(times) if is_late else None

    def _blocks(self, rows: int) -> Iterator[tuple[int, int]]:
        return ((start, min(start + _BLOCK, rows)) for start in range(0, rows, _BLOCK))

    def _sort(self, times: Int64s) -> Duplicate | None:
        """Sort the times of the entities that are out of order; rows are already grouped by entity."""
        ranks = self._empty_ranks()  # the rank by time of each place within its entity
        for first, end in self._stretches():
            low, high = int(self.offsets[first]), int(self.offsets[end])
            sizes = np.diff(self.offsets[first : end + 1])
            in_order = np.arange(high - low) - np.repeat(self.offsets[first:end] - low, sizes)
            if not self._late[first:end].any():
                ranks[low:high] = in_order
                continue
            codes = np.repeat(np.arange(end - first), sizes)
            order = _by_time(codes, times[low:high])
            ascending = times[low:high][order]
            same = (ascending[1:] == ascending[:-1]) & (codes[1:] == codes[:-1])
            self.repeats |= self._allowed and bool(same.any())
            if same.any() and not self._allowed:
                at = int(same.argmax())
                rows = self._source_row(low + int(order[at])), self._source_row(low + int(order[at + 1]))
                return Duplicate(first + int(codes[at]), int(ascending[at]), rows)
            ranks[low + order] = in_order
            times[low:high] = ascending
        of_rows = self._empty_ranks() if self._ranks is None else self._ranks
        for start, stop in self._blocks(self.rows):
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
        entity = int(np.searchsorted(self.offsets, place, "right")) - 1
        rank = place - int(self.offsets[entity])
        if self._codes is None:
            return int(self._begins[np.flatnonzero(self._sequence == entity)[0]]) + rank
        return int(np.flatnonzero(self._codes == entity)[rank])

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
