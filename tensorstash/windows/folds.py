"""Rolling-origin evaluation: windows before and from cuts that move through time."""

from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from tensorstash.common.checks import at_least, is_integer
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Frequency, frequency
from tensorstash.errors import DataError
from tensorstash.windows.intervals import Intervals, keep
from tensorstash.windows.layout import Layout, label_times
from tensorstash.windows.slots import run_edges
from tensorstash.windows.splits import cut_at_time

Length = SupportsIndex | str  # of time: slots, or a duration

_FARTHEST = 1 << 61  # ticks from a time, so that int64 holds the time there


@dataclass(frozen=True, slots=True)
class _Shift:
    """A length of time, which times are moved by."""

    frequency: Frequency
    count: int

    def move(self, time: int, times: int) -> int:
        """The time so many of these lengths later, or with a negative number earlier."""
        return int(self.frequency.advance(np.array([time]), np.array([times * self.count]))[0])

    def check(self, times: int, what: str) -> None:
        """Refuse so many of these lengths if they are longer than times can be apart."""
        unit = {"ticks": 1, "months": 28 * self.frequency.clock.day}.get(self.frequency.kind, self.frequency.clock.day)
        if times * self.count * self.frequency.count * unit > _FARTHEST:
            raise ValueError(
                f"The cuts of folds lie at most 2**61 ticks before the last anchor; {what} is longer. Take fewer "
                "folds, or a shorter step= or gap=."
            )


def folds(
    layout: Layout, windows: Intervals, count: SupportsIndex, step: Length, gap: Length, *, expanding: bool
) -> list[tuple[Intervals, Intervals]]:
    """The windows of the training and the test part of each fold, the earliest fold first."""
    number, by = at_least(1, count, "count"), _shift(layout, step, 1, "step")
    pause = _shift(layout, gap, 0, "gap")
    by.check(number, f"{number} x step={step!r}")
    pause.check(1, f"gap={gap!r}")
    begin, end = _anchor_range(layout, windows)
    made = []
    for k in range(number):
        cut, following = by.move(end, k - number), by.move(end, k + 1 - number)
        start = None if expanding else cut_at_time(layout, by.move(begin, k))
        train = _between(layout, windows, start, cut_at_time(layout, pause.move(cut, -1)), layout.length - 1)
        low, high = cut_at_time(layout, cut), cut_at_time(layout, following)
        test = _between(layout, windows, low, high, layout.history + layout.label)
        for part, name in ((train, "training"), (test, "test")):
            if not len(part):
                form = layout.stash.clock.format
                raise DataError(
                    f"A fold has windows in both parts; fold {k} of {number}, whose cut is {form(cut)}, has no "
                    f"{name} window. Anchors lie in [{form(begin)}, {form(end)}): take fewer folds, or another step= "
                    "or gap=."
                )
        made.append((train, test))
    return made


def _shift(layout: Layout, length: Length, least: int, what: str) -> _Shift:
    """Slots, which are steps of the frequency, or a duration as polars writes it."""
    own = layout.slots.frequency
    if not is_integer(length):
        return _Shift(frequency(str(length), layout.stash.clock, None, what), 1)
    slots = at_least(least, length, what)
    if own is None and slots:
        raise ValueError(f"{what}= in slots needs the step of time, and gaps='ignore' counts none. Give a duration.")
    return _Shift(own or Frequency("", "ticks", 1, 0, layout.stash.clock), slots)


def _anchor_range(layout: Layout, windows: Intervals) -> tuple[int, int]:
    """The time of the first anchor, and the time one slot behind the last anchor with a whole horizon."""
    run_begins, run_ends = run_edges(layout.slots)
    first, begins = windows.first, windows.begins
    run = np.searchsorted(run_begins, first, "right") - 1
    whole = (run_ends[run] - layout.slots.tail - layout.length - first) // windows.stride + 1
    last = first + windows.stride * (np.minimum(whole, windows.ends - begins) - 1)
    times = label_times(layout, last[whole > 0] + layout.history)
    anchors = label_times(layout, first + layout.history)
    assert times is not None
    assert anchors is not None
    if not len(times):
        raise DataError("Folds are made of windows with a whole horizon; none of these windows has one.")
    step = layout.slots.frequency
    end = int(times.max())
    return int(anchors.min()), end + 1 if step is None else _Shift(step, 1).move(end, 1)


def _between(layout: Layout, windows: Intervals, low: Int64s | None, high: Int64s, reach: int) -> Intervals:
    """The windows whose label slot is at or behind `low` and whose slot number `reach` is before `high`, by run."""
    begins, ends = run_edges(layout.slots)
    first = begins if low is None else np.clip(low - layout.history - layout.label, begins, ends)
    return keep(windows, first, np.clip(high - reach, first, ends))
