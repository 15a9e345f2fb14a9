"""Spans in time over one stretch: where the rows of each window are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.common.records import some_of
from tensorstash.errors import DataError
from tensorstash.gather.memory import Filling, Memory, by_component, never_empty
from tensorstash.gather.rows import Picked, Stretches
from tensorstash.gather.span import Span
from tensorstash.native.guide import first_rows
from tensorstash.native.versions import Moments, pick
from tensorstash.stash.stash import Stash
from tensorstash.windows.during import During, buckets_of, shifts_of
from tensorstash.windows.fills import empty_values
from tensorstash.windows.intervals import Ranges
from tensorstash.windows.shift import Shift
from tensorstash.windows.tables import FARTHEST_TIME, Table, table_of

# the times of the rows and the times from which they were known, as columns
ROW_TIMES, KNOWN_TIMES = "__time", "__known"
_SLOTS = 1 << 20  # whose rows are looked up at a time


class Candidates(NamedTuple):
    """The rows of the entity of each window, of which some are picked, and its time; arrays of one shape."""

    low: Int64s
    high: Int64s
    origin: Int64s


@dataclass(frozen=True, eq=False, slots=True)
class TimeSpan:
    """Spans over one stretch of time of one table, whose rows are found once for all of them."""

    table: Table
    start: Shift  # in ticks of the table's clock, as all lengths of time here
    stop: Shift
    closed: str
    max_rows: int  # slots
    every: int | None  # the ticks of a bucket, of which each slot has one
    spans: tuple[Span, ...]  # of rows, counted back from the end of the stretch
    ages: tuple[Span, ...]  # beside them: their `age` and `delay`, distances of `ROW_TIMES` and `KNOWN_TIMES`
    fills: Mapping[str, torch.Tensor]  # of empty slots, by column
    min_rows: int
    named: str  # the span that asks for `min_rows`

    @property
    def stash(self) -> Stash:
        """The stash that the rows are taken from."""
        return self.table.stash

    @property
    def is_ahead(self) -> bool:
        """Whether it reaches into the future of its window, which parts of a split then must not share.

        Versions that were known at the time of the window do not count as future.
        """
        return self.stop.steps > 0 and self.stash.known is None

    @property
    def texts(self) -> list[str]:
        """The spans as text, for a repr."""
        brackets = "[)" if self.closed == "left" else "(]"
        stretch = f"{brackets[0]}{self.start.text}, {self.stop.text}{brackets[1]}"
        aged = {span.name: ", with age" for span in self.ages}
        of = "" if self.table.name is None else f" of {self.table.name}"
        if self.table.by is not None:
            of += f" by {', '.join(self.table.by)}"
        slots = f"at most {self.max_rows}" if self.every is None else f"in {self.max_rows} buckets"
        return [
            f"{span.name}={span.column}{stretch}{of}, {slots}{aged.get(f'{span.name}.age', '')}" for span in self.spans
        ]

    @property
    def memory(self) -> Memory:
        """What its spans are gathered from."""
        stash, columns = self.stash, dict(self.stash)
        every = {ROW_TIMES: stash.time, KNOWN_TIMES: stash.known}
        times = {name: tensor for name, tensor in every.items() if tensor is not None}
        filling = Filling(None, 0, self.fills, {})
        return Memory(stash, never_empty(columns | times), filling)

    def over(self, stashes: Mapping[Stash, Stash]) -> "TimeSpan":
        """The same spans over stashes with the same rows."""
        stash = stashes.get(self.stash, self.stash)
        return replace(self, table=replace(self.table, stash=stash), fills=_fills(stash, self.spans))

    def moved(self, times: Int64s) -> tuple[Int64s, Int64s]:
        """The first tick of the stretch around each time of a window, and the first one after it."""
        return self._around(self.table.moments(times))

    def _around(self, moments: Int64s) -> tuple[Int64s, Int64s]:
        after = int(self.closed == "right")
        return self.start.moved(moments) + after, self.stop.moved(moments) + after

    def find(self, entities: Int64s, times: Int64s, stop: Int64s | None = None) -> "Stretches | Candidates":
        """The rows in the stretches around the times of windows of these entities, of any shape.

        `stop` is the row after the last row of each stretch, if it is known already.
        """
        table, (low, high) = self.table, self.table.rows_of(entities)
        if self.every is not None or self.stash.known is not None:  # its rows need not follow each other
            return Candidates(low, high, table.moments(times))
        begin, end = self.moved(times)
        first = first_rows(table.times, low, high if stop is None else stop, table.bounds(begin))
        if stop is None:
            stop = first_rows(table.times, first, high, table.bounds(end))
        return Stretches(stop, np.minimum(stop - first, self.max_rows), table.moments(times))

    def pick(self, of: Candidates) -> Int64s:
        """The rows of windows, `(windows, slots)`, -1 for an empty slot."""
        table, after = self.table, int(self.closed == "right")
        moments = Moments(of.low, of.high, *self._around(of.origin), table.too_late(of.origin + after))
        return pick(table.versions(), moments, self.max_rows, self.every)

    def picked(self, of: Candidates) -> Iterator[Int64s]:
        """The same of few windows at a time, at least once."""
        some = max(1, _SLOTS // self.max_rows)
        for start in range(0, max(1, len(of.low)), some):
            yield self.pick(some_of(of, slice(start, start + some)))

    def count(self, found: Stretches | Candidates) -> Int64s:
        """How many slots of each window have a row."""
        if isinstance(found, Stretches):
            return found.rows
        return np.concatenate([(rows >= 0).sum(1) for rows in self.picked(found)])

    def ranges(self, found: Stretches | Candidates) -> Ranges:
        """Ranges `[low, high)` of the rows of windows, which may overlap."""
        if isinstance(found, Stretches):
            return found.stop - found.rows, found.stop
        rows = np.concatenate([np.unique(rows[rows >= 0]) for rows in self.picked(found)])
        return rows, rows + 1


def picked_of(time_spans: Sequence[TimeSpan], candidates: Candidates, component: Int32s | None) -> Picked:
    """The rows of windows in one span in time, which each component has of its own; `None`: there is only one."""
    if component is None:
        return Picked(time_spans[0].pick(candidates), candidates.origin)
    rows = np.empty((len(component), time_spans[0].max_rows), np.int64)
    for k, which in by_component(component):
        rows[which] = time_spans[k].pick(some_of(candidates, which))
    return Picked(rows, candidates.origin)


_Stretch = tuple[Table, Shift, Shift, str, int, int | None]


def time_spans(
    stash: Stash, spans: Mapping[str, During], tables: Mapping[str, Stash], closed: str
) -> tuple[TimeSpan, ...]:
    """The spans in time, grouped by the table and the stretch of time that they cover."""
    seen: dict[tuple[str | None, tuple[str, ...] | None], Table] = {}
    alike: dict[_Stretch, dict[str, During]] = {}
    for name, span in spans.items():
        whose = (span.table, span.by_names)
        if whose not in seen:
            seen[whose] = table_of(stash, span.table, tables, span.by_names)
            first, last = stash.time_range
            if first is not None and last is not None:
                seen[whose].check_moments(first, last, stash.clock)
        table = seen[whose]
        start, stop = shifts_of(span, table.clock, repr(name))
        slots, every = buckets_of(span, start, stop, table.clock, repr(name))
        _check_known(table, name, span, stop)
        alike.setdefault((table, start, stop, span.closed or closed, slots, every), {})[name] = span
    return tuple(_time_span(stretch, members) for stretch, members in alike.items())


def _check_known(table: Table, name: str, span: During, stop: Shift) -> None:
    """Raise an error for a stretch that known times do not allow."""
    low, high = table.stash.known_range
    if table.stash.known is None or low is None or high is None:
        return
    if stop.steps > 0 and span.every is None:
        raise ValueError(
            f"A stretch ahead over known times needs every=, because with max_rows= a row that is not known yet shifts "
            f"all others; got {span.stop!r} as the stop of {name!r}. Give the time between its rows, such as "
            f"every={1 if table.clock.unit is None else '1h'!r}."
        )
    if span.age and max(-low, high) * table.known_ticks >= FARTHEST_TIME:
        known = table.stash.known_clock.format
        raise DataError(
            f"<span>.delay needs known times within 2**62 ticks of 0 in {table.clock.unit!r}, got {known(low)} to "
            f"{known(high)} for {name!r}. Leave age= out, or leave such rows out with filter=."
        )


def _time_span(stretch: _Stretch, members: Mapping[str, During]) -> TimeSpan:
    table, start, stop, closed, slots, every = stretch
    spans = [Span(name, span.column, -slots, 0) for name, span in members.items()]
    aged = [name for name, span in members.items() if span.age]
    ages = [Span(f"{name}.age", ROW_TIMES, -slots, 0, distance=table.time_ticks) for name in aged]
    if table.stash.known is not None:
        ages += [Span(f"{name}.delay", KNOWN_TIMES, -slots, 0, distance=table.known_ticks) for name in aged]
    strictest = max(members, key=lambda name: members[name].min_rows)
    empty, least = _fills(table.stash, spans), members[strictest].min_rows
    return TimeSpan(table, start, stop, closed, slots, every, (*spans,), (*ages,), empty, least, strictest)


def _fills(stash: Stash, spans: Sequence[Span]) -> dict[str, torch.Tensor]:
    zero = torch.zeros((), dtype=torch.int64)
    return empty_values(stash, spans, {}, timed=False) | {ROW_TIMES: zero, KNOWN_TIMES: zero}
