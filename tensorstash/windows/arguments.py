"""The arguments of `Windows`, and which of them contradict each other."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensorstash.common.calendar import GivenStep, Step
from tensorstash.common.frequency import Duration
from tensorstash.common.text import type_text
from tensorstash.gather.span import Span
from tensorstash.stash.stash import Stash
from tensorstash.windows.align import Align
from tensorstash.windows.at import Unmatched
from tensorstash.windows.during import During, Side
from tensorstash.windows.gaps import Gaps
from tensorstash.windows.placement import Placement
from tensorstash.windows.require import Require
from tensorstash.windows.selection import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What windows were asked for: the arguments of `Windows` that are not data."""

    spans: tuple[Span, ...]  # in slots
    in_time: Mapping[str, During]
    min_history: int | None
    min_horizon: int | None
    stride: int
    align: Align
    gaps: Gaps
    frequency: GivenStep | Step | None
    tolerance: Duration | None
    require: Require | None
    where: Where | None
    closed: Side
    unmatched: Unmatched
    is_whole: bool  # whether spans reach to the end of the run, their stop: the longest one there may be

    is_masked: bool = False  # `where` was booleans of the rows of one stash, which are not kept

    @property
    def horizon(self) -> int:
        """Slots of a window from the anchor on."""
        return max([0, *(span.stop for span in self.spans)])

    @property
    def may_be_empty(self) -> bool:
        """Whether some slots of windows may have no row."""
        is_padded = self.min_history is not None or self.min_horizon is not None
        return self.gaps == "mask" or is_padded or any(span.draw is not None for span in self.spans)

    def history(self, at: Any) -> int:
        """Slots before the anchor. Without spans in slots a window is one row, or with `at=` a point in time."""
        return max([0 if self.spans or at is not None else 1, *(-span.start for span in self.spans)])

    def check(self, stash: Stash, at: Any) -> None:
        """Raise `ValueError` for arguments that contradict each other, the stash, or points in time."""
        if stash.known is not None and (at is None or self.spans):
            raise ValueError(
                f"Rows with known times, {stash.known_name!r}, are versions of a time, which cannot be anchors or fill "
                "slots. Give the times to look from as at=, with spans in time alone, ts.During(...), or take the "
                "stash as a table of other windows, tables=."
            )
        if at is None and (self.closed, self.unmatched) != ("left", "error"):
            raise ValueError(
                "closed= and unmatched= must be given with at=. For a span in time, see closed= of ts.During."
            )
        strides = {"stride": self.stride != 1, "align": str(self.align) != "start"}
        if at is not None:
            _refuse(
                {"where": self.where is not None} | strides,
                "{} must be left out with at=, which has a row for each window. Choose rows of the frame.",
            )
        if self.is_whole:
            _refuse(
                strides | {"at": at is not None},
                "A span to the end of its run makes one window a run, from its first slot on, so {} must be left out. "
                "For several windows a run give its stop a number.",
            )
        if not self.spans:
            slots = ("frequency", "tolerance", "min_history", "min_horizon")
            _refuse(
                {"gaps": self.gaps == "mask"} | {name: getattr(self, name) is not None for name in slots},
                "{} is about slots, and windows of spans in time alone have none. Leave it out; for a least number of "
                "rows see min_rows= of ts.During.",
            )

    def without_rows(self) -> "Arguments":
        """The arguments without what belongs to the rows of one stash."""
        kept = replace(self, frequency=None)  # that of the placement says what was found
        return kept if self.where is None or isinstance(self.where, str) else replace(kept, where=None, is_masked=True)

    def elsewhere(self, placement: Placement, at: Any, step: Step | None) -> "Arguments":
        """The arguments for other data than that of a placement, with a step of time."""
        if at is None and placement.points is not None:
            raise ValueError("These windows are at given points, and other data have others. Give them as at=.")
        if at is not None:
            return replace(self, frequency=step, stride=1, align="start", where=None, is_masked=False)
        if self.is_masked:
            raise ValueError(
                "These windows were chosen by where= with booleans for the rows of their own stash, which other data "
                "do not have. Load the booleans as a column, and name it as where=."
            )
        return replace(self, frequency=step)


def _refuse(given: Mapping[str, bool], text: str) -> None:
    """Raise `ValueError` for the first argument that is given although others exclude it."""
    for name, is_given in given.items():
        if is_given:
            raise ValueError(text.format(f"{name}="))


def check_stash(stash: object) -> None:
    """Raise `TypeError` if `stash` is not a `Stash`."""
    if not isinstance(stash, Stash):
        raise TypeError(
            f"stash must be a stash, ts.load(...), got {type_text(stash)}. For data of several machines, use "
            "ts.cluster.windows(...)."
        )
