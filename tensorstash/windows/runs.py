"""Runs: consecutive rows without a gap in time, found by scans in blocks."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from tensorstash.common.clock import Clock
from tensorstash.common.dtypes import Int64s
from tensorstash.common.frequency import Duration, Frequency, describe_step, frequency, inferred
from tensorstash.windows.shift import FARTHEST

_BLOCK = 1 << 18  # rows scanned at a time: the temporary arrays stay in the cache
_SAMPLE = 1 << 16
_SHORT = 256  # rows of a block of the sample
_COMMONEST = 8  # of the steps of one part of the data: enough to find the most common step of all parts
_MOST_STEPS = 100_000  # distinct steps counted; beyond that the rarest are forgotten


@dataclass(frozen=True, slots=True)
class Runs:
    """Where each run begins and how many rows it has, and the step of time in all of them."""

    first: Int64s  # (runs,) its first row
    rows: Int64s  # (runs,)
    frequency: Frequency | None
    steps: tuple[tuple[str, int], ...] = ()  # the most common steps at gaps, and how often each occurs


def entity_runs(offsets: Int64s) -> Runs:
    """Every entity one run."""
    rows = np.diff(offsets)
    return Runs(offsets[:-1][rows > 0], rows[rows > 0], None)


def find_runs(
    offsets: Int64s, times: Int64s, clock: Clock, wanted: Duration | Frequency | None, tolerance: Duration | None
) -> Runs:
    """Split the rows of each entity where a step of time is not the frequency, `wanted` or inferred."""
    whole = entity_runs(offsets)
    if not (whole.rows > 1).any():
        return whole if wanted is None else replace(whole, frequency=_given(wanted, clock, tolerance))
    inner = whole.first[1:] - 1  # a pair (i, i + 1) across two entities is not a step
    if wanted is not None:
        chosen = _given(wanted, clock, tolerance)
        gaps = gaps_at(times, inner, chosen)
    else:
        chosen, gaps = _infer(times, inner, clock, tolerance)
        _check_tolerance(chosen)
    # both ascend, and no gap is an entity's first row; numpy's own union is a hundred times slower
    first = np.sort(np.concatenate([whole.first, gaps]), kind="stable")
    rows = np.diff(first, append=len(times))
    sizes, counts = np.unique(times[gaps] - times[gaps - 1], return_counts=True)
    common = np.argsort(-counts, kind="stable")[:3]
    steps = tuple((describe_step(int(sizes[k]), clock), int(counts[k])) for k in common)
    return Runs(first, rows, chosen, steps)


def _given(wanted: Duration | Frequency, clock: Clock, tolerance: Duration | None) -> Frequency:
    if isinstance(wanted, Frequency):
        return wanted
    step = frequency(wanted, clock, tolerance)
    if step.most_ticks > FARTHEST:
        raise ValueError(f"frequency must be at most 2**61 ticks of the times, got {wanted!r}.")
    _check_tolerance(step)
    return step


def _check_tolerance(step: Frequency) -> None:
    """Refuse a tolerance with which one step and two cannot be told apart."""
    if 2 * step.tolerance > step.least_ticks:
        raise ValueError(
            f"tolerance must be at most half of the frequency {step.text!r}, got "
            f"{describe_step(step.tolerance, step.clock)!r}: a longer one hides missing rows. Shorten it, or give the "
            "frequency=."
        )


def gaps_at(times: Int64s, inner: Int64s, step: Frequency) -> Int64s:
    """The rows that do not follow the row before them, without the first rows of entities."""
    gaps = []
    for start in range(0, len(times) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(times) - 1)
        follows = step.follows(times[start:stop], times[start + 1 : stop + 1])
        follows[_within(inner, start, stop)] = True
        gaps.append(np.flatnonzero(~follows) + start + 1)
    return np.concatenate(gaps)


def _within(inner: Int64s, start: int, stop: int) -> Int64s:
    low, high = np.searchsorted(inner, (start, stop))
    return inner[low:high] - start


def _infer(times: Int64s, inner: Int64s, clock: Clock, tolerance: Duration | None) -> tuple[Frequency, Int64s]:
    """The frequency that explains the most common step with the fewest gaps, and these gaps."""
    pairs = len(times) - 1 - len(inner)
    guess = _most_common(times, inner, max(1, (len(times) - 1) // _SAMPLE))
    tried = [(step, gaps_at(times, inner, step)) for step in inferred(guess, clock, tolerance)]
    best = min(tried, key=lambda pair: len(pair[1]))
    if 2 * len(best[1]) < pairs or (exact := _most_common(times, inner, 1)) == guess:
        return best
    tried = [(step, gaps_at(times, inner, step)) for step in inferred(exact, clock, tolerance)]
    return min(tried, key=lambda pair: len(pair[1]))


def _most_common(times: Int64s, inner: Int64s, every: int) -> int:
    """The most common step: of all steps, or of a sample of every n-th short block."""
    counted = count_steps(times, inner, every)
    del counted[0]  # the step between events of one time
    if not counted:
        return 1 if every == 1 else _most_common(times, inner, 1)
    # of equally common steps the smallest, so that the order in which they are counted does not matter
    return min(counted, key=lambda step: (-counted[step], step))


def count_steps(times: Int64s, inner: Int64s, every: int) -> Counter[int]:
    """How often each step occurs: of all steps, or of a sample of every n-th short block; the rarest may be left out.

    `inner` are the rows whose step to the next one leads to another entity.
    """
    if every > 1:
        return _counted(_sampled(times, inner, every))
    counted: Counter[int] = Counter()
    for start in range(0, len(times) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(times) - 1)
        steps = times[start + 1 : stop + 1] - times[start:stop]
        counted.update(_counted(np.delete(steps, _within(inner, start, stop))))
        if len(counted) > _MOST_STEPS:
            counted = Counter(dict(counted.most_common(_MOST_STEPS // 2)))
    return counted


def _counted(steps: Int64s) -> Counter[int]:
    values, counts = np.unique(steps, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist())))


def _sampled(times: Int64s, inner: Int64s, every: int) -> Int64s:
    """The steps of every n-th short block, all at once: at most twice `_SAMPLE`, whatever the number of rows."""
    apart = _SHORT * every
    blocks = np.lib.stride_tricks.sliding_window_view(times, min(_SHORT + 1, len(times)))[::apart]
    rest = times[len(blocks) * apart :][: _SHORT + 1]
    steps = np.concatenate([(blocks[:, 1:] - blocks[:, :-1]).reshape(-1), rest[1:] - rest[:-1]])
    block, place = np.divmod(inner, apart)
    is_sampled = place < _SHORT
    return np.delete(steps, (_SHORT * block + place)[is_sampled])


def pairs_per_frequency(offsets: Int64s, times: Int64s, clock: Clock) -> dict[Frequency, int]:
    """How many pairs of consecutive rows fit each frequency that the most common steps may stand for."""
    runs = entity_runs(offsets)
    if not (runs.rows > 1).any():
        return {}
    inner = runs.first[1:] - 1
    pairs = {}
    for step, count in count_steps(times, inner, 1).most_common(_COMMONEST):
        for candidate in inferred(step, clock, None):
            if candidate not in pairs:
                gaps = None if candidate.kind == "ticks" else gaps_at(times, inner, candidate)
                pairs[candidate] = count if gaps is None else len(times) - 1 - len(inner) - len(gaps)
    return pairs
