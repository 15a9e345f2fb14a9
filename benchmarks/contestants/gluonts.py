"""GluonTS: an endless stream of series, `InstanceSplitter`, `as_stacked_batches`: the way of its torch estimators."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from gluonts.dataset.loader import as_stacked_batches
from gluonts.itertools import Cyclic
from gluonts.transform import ExpectedNumInstanceSampler, InstanceSplitter, NumInstanceSampler

from contestants.workload import COVARIATES, Batch, Workload

FIELDS = ("past_target", "future_target", "past_feat_dynamic_real", "future_feat_dynamic_real")


SEVERAL = 10  # windows of a series each time


def entries(work: Workload) -> list[dict[str, Any]]:
    """What GluonTS makes of a frame: a dict for each series."""
    return [
        {
            "item_id": str(series),
            "start": pd.Period("2000-01-01 00:00", freq="h"),
            "target": part["y"].to_numpy().copy(),
            "feat_dynamic_real": part[list(COVARIATES)].to_numpy().T.copy(),
        }
        for series, part in pd.read_parquet(work.path).groupby("series", sort=False)
    ]


def stacked(work: Workload) -> Iterator[Any]:
    sampler = ExpectedNumInstanceSampler(num_instances=1.0, min_past=work.history, min_future=work.horizon)
    return split(sampler, work)


def several(work: Workload) -> Iterator[Any]:
    return split(NumInstanceSampler(N=SEVERAL, min_past=work.history, min_future=work.horizon), work)


def split(sampler: Any, work: Workload) -> Iterator[Any]:
    splitter = InstanceSplitter(
        target_field="target",
        is_pad_field="is_pad",
        start_field="start",
        forecast_start_field="forecast_start",
        instance_sampler=sampler,
        past_length=work.history,
        future_length=work.horizon,
        time_series_fields=["feat_dynamic_real"],
    )
    instances = splitter.apply(Cyclic(entries(work)).stream(), is_train=True)
    batches = as_stacked_batches(instances, batch_size=work.batch, field_names=list(FIELDS), output_type=torch.tensor)
    return iter(batches)


def columns(batch: Any, _: Workload) -> Batch:
    target, covariates = (
        torch.cat([batch[f"past_{field}"], batch[f"future_{field}"]], dim=1)
        for field in ("target", "feat_dynamic_real")
    )
    return {"y": target, **dict(zip(COVARIATES, covariates.unbind(2)))}
