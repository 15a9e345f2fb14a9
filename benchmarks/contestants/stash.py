"""tensorstash: `load`, `Windows`, `Loader`."""

from collections.abc import Iterator, Mapping, Sequence

import torch

import tensorstash as ts
from contestants.workload import NAMES, Batch, Workload, forever


def shuffled(work: Workload, columns: Sequence[str] | Mapping[str, Sequence[str]]) -> Iterator[Batch]:
    stash = ts.load(work.path, columns, entity="series", time="t", progress=False)
    windows = ts.Windows(stash, work.history, work.horizon)
    return forever(ts.Loader(windows, work.batch, shuffle=True, tail="drop"))


def two_spans(work: Workload) -> Iterator[Batch]:
    """Past and future apart, as in the README."""
    stash = ts.load(work.path, {"x": NAMES}, entity="series", time="t", progress=False)
    windows = ts.Windows(stash, spans={"past": ("x", -work.history, 0), "future": ("x", 0, work.horizon)})
    return forever(ts.Loader(windows, work.batch, shuffle=True, tail="drop"))


def separate(work: Workload) -> Iterator[Batch]:
    return shuffled(work, NAMES)


def packed(work: Workload) -> Iterator[Batch]:
    return shuffled(work, {"x": NAMES})


def columns(batch: Batch, _: Workload) -> Batch:
    if "past" in batch:
        return dict(zip(NAMES, torch.cat([batch["past"], batch["future"]], 1).unbind(2)))
    return dict(zip(NAMES, batch["x"].unbind(2))) if "x" in batch else batch
