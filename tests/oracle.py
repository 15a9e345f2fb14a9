"""Windows the slow and obvious way: Python loops over rows, slices, and no arithmetic on intervals."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import torch

import tensorstash as ts


@dataclass(frozen=True)
class Series:
    """One entity: its times, and the number of its first row."""

    times: list[int]
    first: int


def series_of(stash: ts.Stash) -> list[Series]:
    """The entities of a stash, read row by row."""
    offsets = stash.offsets.tolist()
    times = list(range(stash.rows)) if stash.time is None else stash.time.tolist()
    return [Series(times[low:high], low) for low, high in pairwise(offsets)]


def most_common_step(series: list[Series]) -> int | None:
    """The most common difference of neighbours, the smallest of equally common ones."""
    counted = Counter(two - one for one_series in series for one, two in pairwise(one_series.times))
    return min(counted, key=lambda step: (-counted[step], step)) if counted else None


def starts(
    series: list[Series], length: int, stride: int = 1, frequency: int | None = None, tolerance: int = 0
) -> list[int]:
    """The first row of every window, run by run; without a frequency an entity is one run."""
    found = []
    for one_series in series:
        run: list[int] = []
        for k, time in enumerate(one_series.times):
            joined = frequency is None or not run or abs(time - one_series.times[k - 1] - frequency) <= tolerance
            if not joined:
                found += starts_in_run(run, length, stride)
                run = []
            run.append(one_series.first + k)
        found += starts_in_run(run, length, stride)
    return found


def starts_in_run(run: list[int], length: int, stride: int) -> list[int]:
    """Every `stride`-th row of a run at which a window fits."""
    return [run[k] for k in range(0, len(run) - length + 1, stride)]


@dataclass(frozen=True)
class Slot:
    """One step of time of a window; the lead of a run has no time."""

    entity: int
    row: int | None
    time: int | None
    behind: int | None = None  # for a slot behind its run: the run's last row


def slot_runs(stash: ts.Stash, frequency: int | None, masked: bool, lead: int, tail: int = 0) -> list[list[Slot]]:
    """The slots of every run, row by row; without a frequency an entity is one run."""
    runs: list[list[Slot]] = []
    for entity, one_series in enumerate(series_of(stash)):
        run: list[Slot] = []
        for k, time in enumerate(one_series.times):
            step = 0 if not k else time - one_series.times[k - 1]
            missing = step // frequency - 1 if k and masked and frequency and step % frequency == 0 else 0
            joined = k and (frequency is None or step == frequency or missing)
            if not joined:
                run = [Slot(entity, None, None)] * lead
                runs.append(run)
            run += [Slot(entity, None, time - step + (j + 1) * (frequency or 0)) for j in range(missing)]
            run.append(Slot(entity, one_series.first + k, time))
    for run in runs:
        last = run[-1]
        assert last.time is not None
        times = [None if frequency is None else last.time + (k + 1) * frequency for k in range(tail)]
        run += [Slot(last.entity, None, time, last.row) for time in times]
    return runs


def slot_windows(runs: list[list[Slot]], length: int, stride: int) -> list[list[Slot]]:
    """Every window, as its slots."""
    return [run[k : k + length] for run in runs for k in range(0, len(run) - length + 1, stride)]


def is_missing(value: object) -> bool:
    """Whether a number, or one of a pack, is NaN."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(x, float) and math.isnan(x) for x in values)


def span(column: torch.Tensor, anchor: int, begin: int, end: int, step: int) -> torch.Tensor:
    """The slots of one window, by one slice."""
    return column[anchor + begin : anchor + end : step]


def anchor_rows(windows: ts.Windows, ids: list[int]) -> list[int]:
    """The row of the anchor of each window, which the stash has at the entity and the time that the window tells."""
    about, series = windows.anchors(ids), series_of(windows.stash)
    return [
        series[entity].first + series[entity].times.index(time)
        for entity, time in zip(about["entity"].tolist(), about["time"].tolist())
    ]


def steps(
    order: list[int], batch_size: int, ranks: int, tail: str, begin: int = 0
) -> list[list[tuple[list[int], int]]]:
    """For every step and rank the ids, and how many of them are no filler: the order cut into lists."""
    made = []
    for start in range(begin, len(order), ranks * batch_size):
        step = order[start : start + ranks * batch_size]
        if len(step) < ranks * batch_size and tail == "drop":
            break
        share, more = divmod(len(step), ranks)
        parts, at = [], 0
        for rank in range(ranks):
            part = step[at : at + share + (rank < more)]
            at += len(part)
            short = batch_size - len(part) if tail == "pad" else not part
            parts.append((part + step[:1] * short, len(part)))
        made.append(parts)
    return made


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal shape, dtype and bits."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return _bytes(one) == _bytes(two)


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
    return plain.view(torch.uint8).numpy().tobytes()
