"""Spans in time over one stretch: where the rows of each window are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import Span
from tensorstash.gather.stretches import Stretches
from tensorstash.native.guide import first_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.during import During, shifts_of, slots_of
from tensorstash.windows.fills import empty_values
from tensorstash.windows.shift import Shift
from tensorstash.windows.tables import Table, own_table, table_of

ROW_TIMES = "__time"  # the times of the rows, as a column


@dataclass(frozen=True, eq=False, slots=True)
class TimeSpan:
    """Spans over one stretch of time of one table, whose rows are found once for all of them."""

    table: Table
    start: Shift  # in ticks of the table's clock, as all lengths of time here
    stop: Shift
    closed: str
    max_rows: int  # slots
    spans: tuple[Span, ...]  # rows counted back from the end of the stretch; ages are distances of `ROW_TIMES`
    fills: Mapping[str, torch.Tensor]  # of empty slots, by column
    min_rows: int
    named: str  # the span that asks for `min_rows`

    @property
    def stash(self) -> Stash:
        """The stash that the rows are taken from."""
        return self.table.stash

    @property
    def shown(self) -> tuple[Span, ...]:
        """The spans without ages."""
        return tuple(span for span in self.spans if not span.is_distance)

    @property
    def is_ahead(self) -> bool:
        """Whether it reaches into the future of its window, which parts of a split then must not share."""
        return self.stop.steps > 0

    @property
    def texts(self) -> list[str]:
        """The spans as text, for a repr."""
        brackets = "[)" if self.closed == "left" else "(]"
        stretch = f"{brackets[0]}{self.start.text}, {self.stop.text}{brackets[1]}"
        aged = {span.name: ", with age" for span in self.spans if span.is_distance}
        of = "" if self.table.name is None else f" of {self.table.name}"
        if self.table.by is not None:
            of += f" by {', '.join(self.table.by)}"
        return [
            f"{span.name}={span.column}{stretch}{of}, at most {self.max_rows}{aged.get(f'{span.name}.age', '')}"
            for span in self.shown
        ]

    def moved(self, times: Int64s) -> tuple[Int64s, Int64s]:
        """The first tick of the stretch around each time of a window, and the first one after it."""
        moments, after = self.table.moments(times), int(self.closed == "right")
        return self.start.moved(moments) + after, self.stop.moved(moments) + after

    def find(self, entities: Int64s, times: Int64s, stop: Int64s | None = None) -> Stretches:
        """The rows in the stretches around the times of windows of these entities, of any shape.

        `stop` is the row after the last row of each stretch, if it is known already.
        """
        table, (begin, end) = self.table, self.moved(times)
        low, high = table.rows_of(entities)
        first = first_rows(table.times, low, high if stop is None else stop, table.bounds(begin))
        if stop is None:
            stop = first_rows(table.times, first, high, table.bounds(end))
        return Stretches(stop, np.minimum(stop - first, self.max_rows), table.moments(times))


_Stretch = tuple[Table, Shift, Shift, str, int]


def time_spans(
    stash: Stash, spans: Mapping[str, During], tables: Mapping[str, Stash], closed: str
) -> tuple[TimeSpan, ...]:
    """The spans in time, grouped by the table and the stretch of time that they cover."""
    seen: dict[tuple[str | None, tuple[str, ...] | None], Table] = {}
    alike: dict[_Stretch, dict[str, During]] = {}
    for name, span in spans.items():
        whose = (span.table, span.by_names)
        if whose not in seen:
            seen[whose] = own_table(stash) if span.table is None else table_of(stash, span.table, tables, span.by_names)
            first, last = stash.time_range
            if first is not None and last is not None:
                seen[whose].check_moments(first, last, stash.clock)
        table = seen[whose]
        start, stop = shifts_of(span, table.clock, repr(name))
        slots, _ = slots_of(span, start, stop, table.clock, repr(name))
        alike.setdefault((table, start, stop, span.closed or closed, slots), {})[name] = span
    return tuple(_time_span(stretch, members) for stretch, members in alike.items())


def _time_span(stretch: _Stretch, members: Mapping[str, During]) -> TimeSpan:
    table, start, stop, closed, slots = stretch
    columns = [Span(name, span.column, -slots, 0) for name, span in members.items()]
    ages = [
        Span(f"{name}.age", ROW_TIMES, -slots, 0, distance=table.time_ticks)
        for name, span in members.items()
        if span.age
    ]
    empty = empty_values(table.stash, columns, {}, timed=False) | {ROW_TIMES: torch.zeros((), dtype=torch.int64)}
    strictest = max(members, key=lambda name: members[name].min_rows)
    return TimeSpan(
        table, start, stop, closed, slots, (*columns, *ages), empty, members[strictest].min_rows, strictest
    )
