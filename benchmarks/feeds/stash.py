"""tensorstash: `load`, `Windows`, `Scaler`, `Loader`."""

from dataclasses import replace

import torch

import tensorstash as ts
from feeds.task import KNOWN, Batch, Task


def scaled_per_batch(task: Task) -> ts.Loader:
    return _loader(task, once=False)


def scaled_once(task: Task) -> ts.Loader:
    return _loader(task, once=True)


def on_host(task: Task) -> ts.Loader:
    return _loader(replace(task, device="cpu"), once=True)


def resident(task: Task) -> ts.Loader:
    return _loader(task, once=True, resident=True)


def _loader(task: Task, *, once: bool, resident: bool = False) -> ts.Loader:
    whole = task.targets == len(task.columns)
    target = {} if whole else {"y": list(task.columns[: task.targets])}
    columns = {"x": list(task.columns), "known": list(KNOWN), **target}
    stash = ts.load(task.path, columns, entity="series", time="t", static=list(task.static) or None, progress=False)
    spans = {
        "past": ("x", -task.history, 0),
        "known": ("known", -task.history, task.horizon),
        "target": ("x" if whole else "y", 0, task.horizon),
    }
    scaler = ts.Scaler.fit(stash, list(columns))  # of all rows, as the other feeds do
    windows = ts.Windows(stash, spans=spans)
    if once:
        windows = windows.on(scaler.transform(stash))

    def with_static(batch: Batch) -> Batch:
        found = {name: batch[name] for name in spans}
        return found | ({"static": torch.stack([batch[name] for name in task.static], 1)} if task.static else {})

    scaling = [] if once else [scaler]
    return ts.Loader(
        windows,
        task.batch,
        shuffle=True,
        tail="drop",
        transform=[*scaling, with_static],
        device=task.device,
        resident=resident,
    )
