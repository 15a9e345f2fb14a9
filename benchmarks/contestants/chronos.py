"""Chronos-1: the iterable data set of its training script, over GluonTS, without its tokenizer and without drops.

The script's class is no part of the package, so the same classes of GluonTS are put together here: a cyclic stream of
each data set through an `InstanceSplitter`, and a data set by its weight for each sample. Its series lie in memory,
where the script reads Arrow files.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from bench_pretrain import BATCH, HIGH, LOW, Floats, Sets, weights_of
from gluonts.itertools import Cyclic, Map
from gluonts.transform import ExpectedNumInstanceSampler, FilterTransformation, InstanceSplitter


def preprocessed(entry: dict[str, Any]) -> dict[str, Any]:
    return {"start": entry["start"], "target": np.asarray(entry["target"], dtype=np.float32)}


def instances(series: list[Floats]) -> Iterator[dict[str, Any]]:
    """About one cut of each series in turn."""
    entries = [{"start": pd.Period("2000-01-01", freq="h"), "target": values} for values in series]
    splitter = InstanceSplitter(
        target_field="target",
        is_pad_field="is_pad",
        start_field="start",
        forecast_start_field="forecast_start",
        instance_sampler=ExpectedNumInstanceSampler(num_instances=1.0, min_instances=1, min_past=LOW, min_future=1),
        past_length=HIGH,
        future_length=1,
        dummy_value=np.nan,
    )
    held = FilterTransformation(condition=lambda entry: (~np.isnan(entry["past_target"])).sum() > 0)
    return iter((splitter + held).apply(Cyclic(Map(preprocessed, entries)), is_train=True))


def batches(sets: Sets) -> Iterator[dict[str, Any]]:
    """Batches of `BATCH` pasts, padded on the left with NaN."""
    streams = [*map(instances, sets)]
    shares = np.array(weights_of(sets))
    shares /= shares.sum()
    while True:
        pasts = []
        for _ in range(BATCH):
            entry = next(streams[np.random.choice(len(streams), p=shares)])
            pasts.append(torch.tensor(entry["past_target"]))
        past = torch.stack(pasts)
        yield {"past_target": past, "mask": ~past.isnan()}
