"""The order of the rows of a stash: grouped by entity and ordered by time, or by time and known time, without ties."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.ingest.codes import inverse
from tensorstash.ingest.memory import SORT_BYTES
from tensorstash.ingest.survey import Planned
from tensorstash.sources.file import ARROW, CSV
from tensorstash.sources.scan import Scan

_SUNDAY = 3  # of the days since 1970, which began on a Thursday, modulo 7
_BLOCK = 1 << 17  # rows looked at together
Integers = NDArray[np.signedinteger[Any]]  # of 32 bits, if the number of rows allows it


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A time, or with known times a version of it, that an entity has twice, and the two rows of the source."""

    entity: int
    time: int
    known: int | None
    rows: tuple[int, int]


class Arranger:
    """Takes the entities of all rows in the order of the source, and computes the place of each row in the stash.

    It keeps runs: consecutive rows of one entity. Most sources are grouped by entity, so they have few.
    """

    def __init__(self, rows: int, check: Callable[[int], None], entities: int, *, duplicates: bool = False) -> None:
        """`check(row_bytes)` raises an error if there is not enough memory to sort the rows.

        `entities` is the number of entities known in advance; rows may bring others. With `duplicates`, an entity may
        have several rows of one time (and one known time), which stay in the order of the source.
        """
        self.rows = rows
        self.repeats = False  # whether an entity has several rows of one time
        self.known_first = False  # whether the rows of an entity are ordered by known time, then by time
        self.arranged = True  # whether the rows of the stash are in the order of the source
        self.offsets: Int64s = np.zeros(1, np.int64)
        self._check = check
        self._allowed = duplicates
        self._is_grouped = True
        self._taken = 0
        self._known = entities
        self._counts: Int64s = np.zeros(entities, np.int64)  # the rows of each entity so far, with room for more
        self._integer: type[np.signedinteger[Any]] = np.int32 if rows <= np.iinfo(np.int32).max else np.int64
        # of each run: its first row, its entity, and how many rows of the entity come before; the system gives memory
        # only for the runs that are written
        self._runs = 0
        self._starts: Integers = np.empty(rows, self._integer)
        self._codes: Int32s = np.empty(rows, np.int32)
        self._ranks: Integers = np.empty(rows, self._integer)
        self._place_by_time: Integers | None = None  # of each place before sorting by time

    def add(self, codes: Int32s) -> None:
        """Take the entities of the next rows, in any numbering.

        For example, of the first seven rows, whose entities are `codes`:

            codes    1 1 0 1 1 1 0
            run      0 0 1 2 2 2 3
            starts   0   2 3     6    the first row of each run
            runs     1   0 1     0    its entity
            sizes    2   1 3     1
            ranks    0   0 2     1    how many rows of its entity come before it

        The ranks are sums of sizes over the runs of one entity, so the runs are put in the order of their entities:

            order    1 3 0 2          runs 1 and 3 are of entity 0, runs 0 and 2 of entity 1
            sizes    1 1 2 3
            before   0 1 2 4          the rows before each run in this order
            firsts   0   2            the first run of each entity in it
            earlier  0   -2           rows of the entity in earlier calls, less `before` of its first run
            ranks    0 1 0 2          `before` and `earlier` added, in this order
        """
        if not len(codes):
            return
        starts = _starts(codes)
        runs, sizes = codes[starts], _sizes(starts, len(codes))
        self._known = max(self._known, int(runs.max()) + 1)
        if self._known > len(self._counts):  # at least double: growing by one would take quadratic time
            self._counts = np.append(self._counts, np.zeros(self._known, np.int64))
        order = _by_code(runs)
        sizes, entities = sizes[order], runs[order]
        firsts = _starts(entities)  # the first run of each entity
        self._watch_groups(runs, repeated=len(firsts) < len(runs))
        before = np.cumsum(sizes) - sizes
        earlier = self._counts[entities[firsts]] - before[firsts]
        new = slice(self._runs, self._runs + len(runs))
        self._starts[new] = self._taken + starts
        self._codes[new] = runs
        self._ranks[new][order] = before + np.repeat(earlier, _sizes(firsts, len(runs)))
        self._counts[entities[firsts]] += np.add.reduceat(sizes, firsts)
        self._runs += len(runs)
        self._taken += len(codes)

    def _watch_groups(self, runs: Int32s, *, repeated: bool) -> None:
        """Check the memory as soon as the rows of an entity are not contiguous."""
        new = runs[1:] if self._runs and self._codes[self._runs - 1] == runs[0] else runs
        if self._is_grouped and (repeated or self._counts[new].any()):
            self._is_grouped = False
            self._check(SORT_BYTES)

    def finish(self, order: Int64s, times: Int64s | None, known: Int64s | None = None) -> Duplicate | None:
        """Bring times and known times from source order into stash order; returns a duplicate, if there is one.

        `order` has the entities, as they were numbered, in the order of the stash.
        """
        self.offsets = np.append(0, np.cumsum(self._counts[order]))
        self._starts = self._starts[: self._runs]  # for look-ups
        numbers = inverse(order)
        for first, end in _blocks(0, self._runs):
            self._codes[first:end] = numbers[self._codes[first:end]]
            if self.arranged:
                places = self.offsets[self._codes[first:end]] + self._ranks[first:end]
                self.arranged = np.array_equal(places, self._starts[first:end])
        if times is None:
            return None
        if not self.arranged:
            if self._is_grouped:
                self._check(times.itemsize)
            self._move(times)
            if known is not None:
                self._move(known)
        keys = [times] if known is None else self._keys(times, known)
        if self._in_order(keys, 0, self.rows):
            return None
        if self._is_grouped:
            self._check(SORT_BYTES)
        refused = self._sort(keys)
        if refused is None:
            return None
        at, rows = refused
        entity = int(np.searchsorted(self.offsets, at, "right")) - 1
        return Duplicate(entity, int(times[at]), None if known is None else int(known[at]), rows)

    def _move(self, key: Int64s) -> None:
        source = key.copy()
        for start, stop in _blocks(0, self.rows):
            key[self.places(start, stop)] = source[start:stop]

    def _keys(self, times: Int64s, known: Int64s) -> list[Int64s]:
        """Times and known times, the one first that comes first in the order of the rows.

        The fewer known times an entity has, the more rows became known together: they then stand side by side.
        """
        distinct = self._distinct(times)
        self.repeats = distinct < self.rows
        self.known_first = not self._allowed and self._distinct(known) <= distinct
        return [known, times] if self.known_first else [times, known]

    def _distinct(self, key: Int64s) -> int:
        """How many different pairs of an entity and a key there are."""
        if int(np.diff(self.offsets).max(initial=0)) > _BLOCK:
            self._check(key.itemsize)
        count = 0
        for first, end in self._stretches():
            values = key[self.offsets[first] : self.offsets[end]]
            if not len(values):
                continue
            if end - first == 1:
                values = np.sort(values)
                is_new = values[1:] != values[:-1]
            else:
                codes = self._codes_between(first, end)
                values = values[_by_time(codes, values)]
                is_new = (values[1:] != values[:-1]) | (codes[1:] != codes[:-1])
            count += 1 + int(np.count_nonzero(is_new))
        return count

    def _in_order(self, keys: Sequence[Int64s], low: int, high: int) -> bool:
        """Whether the rows of each entity ascend by the keys between two places in the stash; ties are noted."""
        ties = False
        for start, stop in _blocks(low, high - 1):
            tied = np.ones(stop - start, np.bool_)
            first, end = np.searchsorted(self.offsets, [start + 1, stop + 1])
            tied[self.offsets[first:end] - start - 1] = False
            for key in keys:
                earlier, later = key[start:stop], key[start + 1 : stop + 1]
                if (tied & (later < earlier)).any():
                    return False
                tied &= later == earlier
            ties |= bool(tied.any())
            self.repeats |= ties
        return self._allowed or not ties

    def _sort(self, keys: Sequence[Int64s]) -> tuple[int, tuple[int, int]] | None:
        """Sort the rows of the entities that are out of order; they are already grouped by entity.

        Returns the place of a row that has the keys of the next one, and both rows of the source, if that is refused.
        """
        by_time = np.empty(self.rows, self._integer)
        for first, end in self._stretches():
            low, high = int(self.offsets[first]), int(self.offsets[end])
            order: Int64s | slice = slice(None)
            if not self._in_order(keys, low, high):
                codes = self._codes_between(first, end)
                order = _by_keys(codes, [key[low:high] for key in keys])
                same = codes[1:] == codes[:-1]
                for key in keys:
                    key[low:high] = ascending = key[low:high][order]
                    same &= ascending[1:] == ascending[:-1]
                self.repeats |= bool(same.any())
                if same.any() and not self._allowed:
                    at = int(same.argmax())
                    return low + at, (
                        self._source_row(low + int(order[at])),
                        self._source_row(low + int(order[at + 1])),
                    )
            by_time[low:high][order] = np.arange(low, high)
        self._place_by_time, self.arranged = by_time, False
        return None

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Ranges of entities (first, end) with about a block of rows in total, or a single larger entity."""
        first = 0
        while first < self._known:
            end = int(np.searchsorted(self.offsets, self.offsets[first] + _BLOCK, "right")) - 1
            yield first, max(end, first + 1)
            first = max(end, first + 1)

    def _codes_between(self, first: int, end: int) -> Int64s:
        """The entity of each row of the entities `first` to `end`, counted from 0."""
        return np.repeat(np.arange(end - first), np.diff(self.offsets[first : end + 1]))

    def _source_row(self, place: int) -> int:
        """The source row at a place in the stash; only valid before sorting."""
        matches = ((start, self.places(start, stop) == place) for start, stop in _blocks(0, self.rows))
        return next(start + int(is_there.argmax()) for start, is_there in matches if is_there.any())

    def _runs_of(self, start: int, stop: int) -> tuple[slice, Int64s | None]:
        """The runs of the rows `start` to `stop` of the source, and their rows; `None` if these are runs of one row."""
        starts, row = self._starts, self._integer  # numpy would copy the array to compare it with another type
        first = max(int(np.searchsorted(starts, row(start), "right")) - 1, 0)
        end = int(np.searchsorted(starts, row(stop), "left"))
        if end - first == stop - start and (start == stop or starts[first] == start):
            return slice(first, end), None
        return slice(first, end), np.diff(np.clip(np.append(starts[first:end], stop), start, stop))

    def codes(self, start: int, stop: int) -> Int32s:
        """`(stop - start,)`, the entities of the rows of the source from `start` on."""
        runs, sizes = self._runs_of(start, stop)
        return self._codes[runs] if sizes is None else np.repeat(self._codes[runs], sizes)

    def places(self, start: int, stop: int) -> Int64s:
        """`(stop - start,)`, the places in the stash of the source rows from `start` on, as far as they are known."""
        runs, sizes = self._runs_of(start, stop)
        places = self.offsets[self._codes[runs]] + self._ranks[runs]
        if sizes is not None:
            places = np.arange(start, stop) + np.repeat(places - self._starts[runs], sizes)
        return places if self._place_by_time is None else self._place_by_time[places]


def _blocks(low: int, high: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + _BLOCK, high)) for start in range(low, high, _BLOCK))


def _starts(codes: Int32s) -> Int64s:
    return np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))


def _sizes(starts: Int64s, rows: int) -> Int64s:
    return np.append(starts[1:], rows) - starts  # a fifteenth of the time of numpy.diff(append=)


def _by_code(codes: Int32s) -> Int64s:
    """The stable order by code. numpy sorts 16-bit integers by radix, twenty times as fast as wider integers."""
    if codes.max() < 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    order = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    return order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def _by_keys(codes: Int64s, keys: Sequence[Int64s]) -> Int64s:
    """The stable order by code, then by the keys, the first one first. Codes are ascending."""
    order = _by_time(codes, keys[-1])
    for key in keys[-2::-1]:
        order = order[_by_time(codes, key[order])]
    return order


def _by_time(codes: Int64s, times: Int64s) -> Int64s:
    """The stable order by code, then time. Codes are ascending.

    `sort` is three times as fast as `argsort`, so the row is packed into the sorted integer if there is room for it.
    """
    low, high = int(times.min()), int(times.max())
    shift = len(times).bit_length()
    if (int(codes[-1]) + 1) * (high - low + 1) >> (62 - shift):
        return np.lexsort((times, codes))
    return np.sort(((codes * (high - low + 1) + (times - low)) << shift) | np.arange(len(times))) & ((1 << shift) - 1)


def duplicate_time(planned: Planned, scanned: Scan, entity: object, duplicate: Duplicate) -> DataError:
    """The error for a time that occurs twice in an entity, or for two versions of it that became known together."""
    assert planned.time is not None
    clock, name = Clock(planned.time.unit, planned.time.zone), planned.time.members[0]
    whose = f"entity {entity!r}" if planned.entity else "the series (no entity= was given)"
    first, second = map(scanned.name_row, duplicate.rows)
    remedy = _zone_remedy(name, clock, duplicate.time)
    if line := _line_of_paths(planned, scanned, duplicate.rows):
        remedy = f"If each file is a series, load {line} with entity='path'. Else {remedy[0].lower()}{remedy[1:]}"
    rule, twice = "A time occurs once in each entity", f"{name} {clock.format(duplicate.time)}"
    if planned.known is not None and duplicate.known is not None:
        since = Clock(planned.known.unit, planned.known.zone).format(duplicate.known)
        rule, twice = "The versions of a time have different known times", f"{twice} with {planned.known_name} {since}"
    return DataError(
        f"{rule}; {whose} has {twice} in source rows {first} and {second}. {remedy}rop one, name the column that "
        'distinguishes the series as entity=, or keep events with duplicates="keep".'
    )


def _line_of_paths(planned: Planned, scanned: Scan, rows: Sequence[int]) -> str:
    """What makes a series of each file, if a time stands in two files and nothing else tells the series; else empty."""
    first, second = (re.sub(r", (row group|record batch) \d+$", "", scanned.unit_of(row).place) for row in rows)
    if planned.entity is not None or first == second:
        return ""
    reader = "csv" if first.lower().endswith(CSV) else "ipc" if first.lower().endswith(ARROW) else "parquet"
    is_dataset, is_list = scanned.label.startswith("the pyarrow "), re.fullmatch(r"\d+ paths", scanned.label)
    source = "dataset.files" if is_dataset else "paths" if is_list else repr(scanned.label)
    return f"pl.scan_{reader}({source}, include_file_paths='path')"


def _zone_remedy(name: str, clock: Clock, time: int) -> str:
    """What to do if the time is in the night of a Sunday, when clocks without a zone may have been set back."""
    day, within = divmod(time, clock.day)
    if clock.unit in (None, "d") or clock.zone is not None or day % 7 != _SUNDAY or not 0 < within < clock.day // 6:
        return "D"
    return (
        "If clocks were set back in that night, give the times their zone with polars: "
        f"pl.col({name!r}).dt.replace_time_zone('Europe/Berlin', ambiguous=...), 'earliest' or 'latest' for each row. "
        "Else d"
    )
