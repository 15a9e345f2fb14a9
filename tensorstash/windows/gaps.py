"""`gaps=`: what a missing step of time does to the runs of a stash."""

from typing import Literal

from tensorstash.common.calendar import GivenStep, Step
from tensorstash.common.frequency import Duration
from tensorstash.errors import DataError
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import MOST_TICKS
from tensorstash.windows.runs import Runs, entity_runs, find_runs, step_of

Gaps = Literal["split", "mask", "ignore"]


def stash_runs(
    stash: Stash, gaps: str, frequency: GivenStep | Step | None, tolerance: Duration | None, *, in_slots: bool
) -> Runs:
    """Consecutive rows without a missing time step; whole entities if gaps are ignored, or no span is `in_slots`."""
    if not in_slots:
        return entity_runs(stash.offsets.numpy())
    if gaps == "mask" and stash.time is None:
        raise ValueError("gaps='mask' needs times, and this stash has none. Load it with time=.")
    if stash.time is None or gaps == "ignore":
        if frequency is not None or tolerance is not None:
            raise ValueError("frequency and tolerance must be left out with gaps='ignore', and without times.")
        return entity_runs(stash.offsets.numpy())
    if stash.info.time is not None and stash.info.time.duplicates:
        raise DataError(
            f"gaps={gaps!r} counts steps of time, and this stash has entities with several rows of one time. Take "
            "gaps='ignore': windows of consecutive rows."
        )
    first, last = stash.time_range
    if first is not None and last is not None and last - first > MOST_TICKS:
        raise DataError(
            f"Times must lie within 2**62 ticks of each other, got {stash.clock.format(first)} to "
            f"{stash.clock.format(last)}. Leave such rows out with filter=, or take gaps='ignore'."
        )
    step = step_of(stash, frequency, tolerance)
    return find_runs(stash.offsets.numpy(), stash.time.numpy(), stash.clock, step, tolerance)
