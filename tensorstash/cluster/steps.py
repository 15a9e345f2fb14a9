"""The step of time of many shards: each counts its own steps, and the most common of all is the frequency."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tensorstash.common.clock import Clock
from tensorstash.common.frequency import inferred
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import count_steps, entity_runs, gaps_at

_MOST = 20  # steps that a shard tells of: they are written down again after every shard
_TRIED = 8  # steps that may stand for months or days


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of time in a shard."""

    unit: str | None
    zone: str | None
    counts: dict[int, int]  # of each step, in ticks
    explained: dict[str, int]  # by frequency: how many pairs of rows follow it


def steps_of(stash: Stash) -> Steps | None:
    """The steps of a stash; `None` where no entity has two rows with times."""
    whole = entity_runs(stash.offsets.numpy())
    if stash.time is None or not (whole.rows > 1).any():
        return None
    times, inner, clock = stash.time.numpy(), whole.first[1:] - 1, stash.clock
    counts = dict(count_steps(times, inner, 1).most_common(_MOST))
    tried = {one.text: one for step in [*counts][:_TRIED] for one in inferred(step, clock, None)}
    pairs = len(times) - 1 - len(inner)
    explained = {text: pairs - len(gaps_at(times, inner, one)) for text, one in tried.items()}
    return Steps(clock.unit, clock.zone, counts, explained)


def frequency_of(shards: Iterable[Steps | None]) -> str | int | None:
    """The frequency that explains most pairs of rows, of those that the most common step may stand for."""
    counts: Counter[int] = Counter()
    explained: Counter[str] = Counter()
    clock = Clock(None, None)
    for steps in shards:
        if steps is not None:
            counts.update(steps.counts)
            explained.update(steps.explained)
            clock = Clock(steps.unit, steps.zone)
    if not counts:
        return None
    step = min(counts, key=lambda step: (-counts[step], step))
    best = max(inferred(step, clock, None), key=lambda one: explained[one.text])
    return best.text if clock.unit is not None else int(step)
