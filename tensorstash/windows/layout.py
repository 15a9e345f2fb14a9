"""Where windows of one length may lie: the slots of a stash, and the times and entities of these slots."""

from dataclasses import dataclass

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.stash.stash import Stash
from tensorstash.windows.slots import Slots, nearest_rows, times_at


@dataclass(frozen=True, slots=True)
class Layout:
    """Windows of `history + horizon` consecutive slots of a stash."""

    stash: Stash
    slots: Slots
    history: int
    horizon: int

    @property
    def length(self) -> int:
        """Slots of a window."""
        return self.history + self.horizon

    @property
    def label(self) -> int:
        """Slots from a window's anchor to the slot whose entity and time it goes by: without a horizon, its last."""
        return 0 if self.horizon else -1

    @property
    def offsets(self) -> Int64s:
        """`(entities + 1,)` where the rows of each entity begin."""
        return self.stash.offsets.numpy()

    @property
    def times(self) -> Int64s | None:
        """`(rows,)` or `None`."""
        return None if self.stash.time is None else self.stash.time.numpy()


def label_rows(layout: Layout, anchors: Int64s) -> Int64s:
    """The row that windows go by, of any shape, by the slots of their anchors; at an empty slot the nearest row."""
    return nearest_rows(layout.slots, anchors + layout.label)[0]


def entities_of(layout: Layout, rows: Int64s) -> Int64s:
    """The index into `stash.entities` of rows, of any shape."""
    return np.searchsorted(layout.offsets, rows, "right") - 1


def label_times(layout: Layout, anchors: Int64s) -> Int64s | None:
    """The time that windows go by, of any shape, by the slots of their anchors; `None` without a time column."""
    return None if layout.times is None else times_at(layout.slots, layout.times, anchors + layout.label)
