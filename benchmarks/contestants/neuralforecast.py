"""neuralforecast: its loader of whole series, and the windows that `BaseModel.training_step` cuts from them."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from neuralforecast.models import MLP
from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset

from contestants.workload import COVARIATES, Batch, Workload, forever


def cut(work: Workload, series: int) -> Iterator[Any]:
    """Batches of windows from `series` random series each, made as the lines of `training_step` do."""
    frame = pd.read_parquet(work.path)
    data, *_ = TimeSeriesDataset.from_df(frame, id_col="series", time_col="t", target_col="y")
    del frame
    model = MLP(
        h=work.horizon,
        input_size=work.history,
        futr_exog_list=list(COVARIATES),
        windows_batch_size=work.batch,
        batch_size=series,
        training_data_availability_threshold=1.0,  # else some windows are padded with zeros
        scaler_type="identity",
        max_steps=1,
    )
    for batch in forever(TimeSeriesDataModule(data, batch_size=series, drop_last=True).train_dataloader()):
        yield sampled(model, batch, work.batch)


def sampled(model: Any, batch: Any, size: int) -> Any:
    """So many windows of a batch of whole series, cut as the lines of `training_step` do."""
    temporal, static, static_cols, final, weight, temporal_cols = model._create_windows(batch, step="train")
    count = len(final)
    picked = torch.randint(0, count, (size,)) if count < size else torch.randperm(count)[:size]
    windows = model._sample_windows(
        windows_temporal=temporal,
        static=static,
        static_cols=static_cols,
        temporal_cols=temporal_cols,
        w_idxs=picked,
        final_condition=final,
        sample_weight=weight,
    )
    windows = model._normalization(windows=windows, y_idx=batch["y_idx"])
    return model._parse_windows(batch, windows)


def of_32_series(work: Workload) -> Iterator[Any]:
    return cut(work, 32)


def of_one_series(work: Workload) -> Iterator[Any]:
    return cut(work, 1)


def columns(batch: Any, work: Workload) -> Batch:
    past, _, future, _, _, covariates, _ = batch
    target = torch.cat([past, future], dim=1).reshape(-1, work.width)
    return {"y": target, **dict(zip(COVARIATES, covariates.unbind(2)))}
