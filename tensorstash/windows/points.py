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
from tensorstash.windows.slots import Slots, run_edges, runs_at, slots_at, steps_after, steps_until


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


@dataclass(slots=True)
class Refused:
    """The points without a window: for each reason how many, and the first one."""

    stash: Stash
    points: int  # with and without a window
    reasons: list[str] = field(default_factory=list)
    count: int = 0

    def leave_out(self, points: Points, reasons: Mapping[str, Bools]) -> Points:
        """The points for which none of the reasons holds; each other point counts for the first reason that does."""
        left = np.ones(len(points), np.bool_)
        for reason, holds in reasons.items():
            if (wrong := holds & left).any():
                count, first = int(np.count_nonzero(wrong)), int(wrong.argmax())
                self.reasons.append(f"{count:,} {reason} (first: {self._place(points, first)})")
                self.count += count
                left &= ~wrong
        return points if left.all() else points.taken(left)

    def _place(self, points: Points, k: int) -> str:
        entity, row, time = int(points.entity[k]), int(points.row[k]), self.stash.clock.format(int(points.time[k]))
        known = entity >= 0 and self.stash.entity_names
        names = [f"entity {self.stash.entity_at(int(entity))!r}"] if known else [points.unknown] * (entity < 0)
        return ", ".join([f"row {row:,}", *names, f"at {time}"])

    def check(self) -> None:
        """Raise `DataError` if there are any."""
        if self.reasons:
            raise DataError(
                f"Each row of at= must have a window; {self.count:,} of {self.points:,} have none: "
                f"{', '.join(self.reasons)}. Leave these rows out, or take unmatched='drop'."
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
    anchors, run, in_gap, early = _anchor_slots(slots, times, offsets, points)
    (starts, stops), first = run_edges(slots), anchors - history
    short, cut = first < starts[run], first + history + horizon > stops[run]
    reasons = {
        "in a gap of the times": in_gap,
        "more than a step before the first row of the entity": early,
        "with too little history, see min_history=": short,
        "without a whole horizon, see min_horizon=": cut,
    }
    return refused.leave_out(replace(points, slot=anchors), reasons)


def _anchor_slots(slots: Slots, times: Int64s, offsets: Int64s, points: Points) -> tuple[Int64s, Int64s, Bools, Bools]:
    """The slots of anchors and their runs; which points are in a gap, and which are too early for the first slot.

        a point                    its anchor                        its run
        at the time of a row       the slot of the row               that of the row
        ahead of the first row     the slot of the first row         that of the first row
        within a run               the first slot at or after it     that of the row before it
        behind the rows of a run   the slot after the last of them   that of the row before it

    A point that is more than a step ahead is too early; one that is more than a step behind is in a gap.
    """
    low, high, moments = offsets[points.entity], offsets[points.entity + 1], points.from_time
    row = first_rows(times, low, high, moments)  # at or after the point; `high` behind all rows of the entity
    before, after = np.maximum(row - 1, low), np.minimum(row, high - 1)
    slot_before, slot_after = slots_at(slots, before), slots_at(slots, after)
    run_before, run_after = runs_at(slots, before), runs_at(slots, after)
    at_row = (row < high) & (times[after] == moments)
    ahead = ~at_row & (row == low)
    within = ~at_row & ~ahead & (row < high) & (run_before == run_after)
    behind = ~at_row & ~ahead & ~within
    anchors = np.where(behind, slot_before + 1, slot_after)
    run = np.where(within | behind, run_before, run_after)
    in_gap, early = np.zeros(len(points), np.bool_), np.zeros(len(points), np.bool_)
    if slots.frequency is None:
        return anchors, run, in_gap, early
    across = np.flatnonzero(within & (slot_after - slot_before > 1))  # empty slots lie between the two rows
    most = (slot_after - slot_before)[across]
    anchors[across] = slot_before[across] + steps_until(slots, times, before[across], most, moments[across])
    step = np.ones(len(points), np.int64)
    in_gap[behind] = steps_after(slots, times, before[behind], step[behind]) < moments[behind]
    early[ahead] = steps_after(slots, times, after[ahead], -step[ahead]) >= moments[ahead]
    return anchors, run, in_gap, early
