"""Windows at given points in time: the slots of their anchors, and the points without a window."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Bools, Int32s, Int64s
from tensorstash.errors import DataError
from tensorstash.native.guide import first_rows
from tensorstash.stash.stash import Stash
from tensorstash.windows.slots import Slots, run_edges, run_rows, runs_at, slots_at, slots_from, steps_after


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """Windows in the order of a frame, 28 bytes each; their slots need not ascend, as those of intervals must."""

    slot: Int64s  # of the anchor
    time: Int64s  # the point in time, which need not be the time of a row
    row: Int64s  # of the frame
    entity: Int32s
    labels: Mapping[str, NDArray[Any]]  # the other columns of the frame, by its rows
    kinds: Mapping[str, str]  # their types in the frame, with the unit and zone of times
    unknown: str  # the first entity that the stash does not have, as text
    closed: str  # whether the history has rows before the time ("left") or up to it ("right")

    def __len__(self) -> int:
        return len(self.row)

    def taken(self, which: Bools | Int64s) -> "Points":
        """Some of the windows."""
        return replace(
            self, slot=self.slot[which], time=self.time[which], row=self.row[which], entity=self.entity[which]
        )

    @property
    def from_time(self) -> Int64s:
        """The first tick that is not in the history of each window."""
        return self.time + (self.closed == "right")


@dataclass(frozen=True, slots=True)
class Refused:
    """The points without a window."""

    stash: Stash
    every: Points  # with and without a window
    rows: dict[str, Int64s] = field(default_factory=dict)  # of the frame, by the reason

    def leave_out(self, points: Points, reasons: Mapping[str, Bools]) -> Points:
        """The points for which none of the reasons holds; each other point counts for the first reason that does."""
        left = np.ones(len(points), np.bool_)
        for reason, holds in reasons.items():
            self.rows[reason] = points.row[holds & left]
            left &= ~holds
        return points if left.all() else points.taken(left)

    def _text(self, row: int) -> str:
        entity, time = int(self.every.entity[row]), self.stash.clock.format(int(self.every.time[row]))
        name = self.every.unknown if entity < 0 else f"entity {self.stash.entity_at(entity)!r}"
        return f"row {row:,}, {f'{name}, ' if self.stash.entity_names else ''}at {time}"

    def check(self) -> None:
        """Raise `DataError` if there are any."""
        found = {reason: rows for reason, rows in self.rows.items() if len(rows)}
        if found:
            texts = [f"{len(rows):,} {reason} (first: {self._text(int(rows[0]))})" for reason, rows in found.items()]
            raise DataError(
                f"Each row of at= must have a window; {sum(map(len, found.values())):,} of {len(self.every):,} have "
                f"none: {', '.join(texts)}. Leave these rows out, or take unmatched='drop'."
            )


def placed(stash: Stash, slots: Slots, points: Points, size: tuple[int, int], refused: Refused) -> Points:
    """The points that have a window, each with the slot of its anchor: the first slot at or after its time.

    `size` is the history and the horizon in slots.
    """
    assert stash.time is not None
    history, horizon = size
    points = refused.leave_out(points, {"of an entity that the stash does not have": points.entity < 0})
    offsets, times = stash.offsets.numpy(), stash.time.numpy()
    if stash.known is not None:  # rows are not in the order of times, and there are no slots
        return replace(points, slot=offsets[points.entity])
    low, high = offsets[points.entity], offsets[points.entity + 1]
    if not history + horizon:
        return replace(points, slot=slots_at(slots, first_rows(times, low, high, points.from_time)))
    points = refused.leave_out(points, {"of an entity without rows": low == high})
    if not len(points):
        return points
    anchors, run, in_gap, early = _anchor_slots(stash, slots, points)
    (starts, stops), first = run_edges(slots), anchors - history
    short, cut = first < starts[run], first + history + horizon > stops[run]
    reasons = {
        "in a gap of the times": in_gap,
        "more than a step before the first row of the entity": early,
        "with too little history, see min_history=": short,
        "without a whole horizon, see min_horizon=": cut,
    }
    return refused.leave_out(replace(points, slot=anchors), reasons)


def _anchor_slots(stash: Stash, slots: Slots, points: Points) -> tuple[Int64s, Int64s, Bools, Bools]:
    """The slots of anchors and their runs; which points are in a gap, and which are too early for the first slot.

    The run of a point is that of a row at its time, else of the row before it, else of the first row of the entity. Its
    anchor is the first slot of the run at or after it; behind the rows of the run, the slot after the last of them.

    A point that is more than a step ahead is too early; one that is more than a step behind is in a gap.
    """
    assert stash.time is not None
    offsets, times, moments = stash.offsets.numpy(), stash.time.numpy(), points.from_time
    low, high = offsets[points.entity], offsets[points.entity + 1]
    row = first_rows(times, low, high, moments)
    is_own = (row == low) | ((row < high) & (times[np.minimum(row, high - 1)] == moments))
    run = runs_at(slots, np.where(is_own, row, row - 1))
    low, high = (edges[run] for edges in run_rows(slots, len(times)))
    row = np.minimum(row, high)
    anchors = slots_from(slots, stash, (low, high, slots_at(slots, high - 1) + 1), row, moments)
    in_gap, early = np.zeros(len(points), np.bool_), np.zeros(len(points), np.bool_)
    if slots.frequency is None:
        return anchors, run, in_gap, early
    step, ahead, behind = np.ones(len(points), np.int64), row == low, row == high
    in_gap[behind] = steps_after(slots, times, row[behind] - 1, step[behind]) < moments[behind]
    early[ahead] = steps_after(slots, times, row[ahead], -step[ahead]) >= moments[ahead]
    return anchors, run, in_gap, early
