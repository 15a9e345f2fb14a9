"""`stride=` and `align=`: which windows of each run are counted."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Int64s
from tensorstash.stash.stash import Stash
from tensorstash.windows.cuts import cut_at, first_slots, rows_from_cut
from tensorstash.windows.intervals import intervals, windows_in
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import run_edges, run_rows, slots_at, steps_to
from tensorstash.windows.splits import GivenTime

Align = Literal["start", "end"] | GivenTime


@dataclass(frozen=True)
class Strides:
    """Which windows of each run are counted: arguments of `Windows`, by whose names fingerprints have them."""

    stride: int = 1
    align: Align = "start"  # a time is in ticks once it is checked

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that are not their default, by name."""
        # as text: numpy cannot compare a time with "start"
        return {name: value for name, value in vars(self).items() if str(value) != str(getattr(Strides, name))}

    @property
    def remedy(self) -> str:
        """What lets other windows count, as the end of a sentence."""
        return f"lower stride=, or leave out {' and '.join(f'{name}=' for name in self.given if name != 'stride')}"


def checked_strides(strides: Strides, stash: Stash, *, in_steps: bool) -> Strides:
    """Strides whose time is one of the stash, in ticks; `in_steps`: whether windows count steps of time."""
    align: Any = strides.align
    if isinstance(align, str) and not any(map(str.isdigit, align)):
        if align not in ("start", "end"):
            raise ValueError(f'align must be "start", "end" or a time, got {shown(align)}.')
    elif stash.time is None or not in_steps:
        raise ValueError(
            f"align= at a time counts steps of time, got {shown(align)}; there are none with gaps='ignore', without "
            "times, and of spans in time alone. Take align='end'."
        )
    else:
        align = stash.clock.parse(align, "align")
    return Strides() if strides.stride == 1 else replace(strides, align=align)  # each window is counted


def aligned(placement: Placement) -> Placement:
    """The windows counted from where `align=` says, of those that are counted from the first window of each run."""
    stride, align, (starts, stops) = placement.strides.stride, placement.strides.align, run_edges(placement.slots)
    if align == "start":
        return placement
    if isinstance(align, int):
        origin = _slots_at(placement, align) - placement.history - placement.label_offset
    else:
        origin = np.maximum(stops - placement.slots.tail - placement.length, starts)
    first = starts + (origin - starts) % stride
    return replace(placement, intervals=intervals(first, windows_in(stops - first, placement.length, stride), stride))


def align_text(placement: Placement) -> str:
    """Where windows are aligned, as the end of a text."""
    align = placement.strides.align
    if align == "start":
        return ""
    return f" from {placement.stash.clock.format(align) if isinstance(align, int) else 'the end of each run'}"


def _slots_at(placement: Placement, moment: int) -> Int64s:
    """The first slot at or after a time in the steps of each run, which may lie before or after the run: `(runs,)`."""
    slots, step, clock = placement.slots, placement.slots.frequency, placement.stash.clock
    if step is None:
        raise ValueError(
            "align= at a time counts steps of time, and no entity has two rows, which would show the step. Give it as "
            "frequency=."
        )
    first, last = (int(time) for time in placement.stash.time_range if time is not None)
    low, high = min(first, moment) - 3 * step.most_ticks, max(last, moment) + 3 * step.most_ticks
    if high - low > 1 << 62 or low < -1 << 63 or high >= 1 << 63:
        raise ValueError(
            f"align= must lie within 2**62 ticks of the times, which go from {clock.format(first)} to "
            f"{clock.format(last)}, got {clock.format(moment)}. Give a time that is nearer."
        )
    moment -= step.tolerance
    low_rows, high_rows = run_rows(slots, placement.stash.rows)
    cut = cut_at(placement, moment)
    found, row = first_slots(placement, cut), rows_from_cut(placement, cut)[placement.entities_at(low_rows)]
    outside = np.flatnonzero((row <= low_rows) | (row >= high_rows))
    nearest = np.clip(row, low_rows, high_rows - 1)[outside]
    moments = np.full(len(nearest), moment)
    found[outside] = slots_at(slots, nearest) + steps_to(slots, placement.times, nearest, moments)
    return found
