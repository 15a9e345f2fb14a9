"""darts: `SequentialTorchTrainingDataset` and the `DataLoader` that `TorchForecastingModel.fit` builds."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from darts import TimeSeries
from darts.models.forecasting.torch_forecasting_model import TorchForecastingModel
from darts.utils.data import SequentialTorchTrainingDataset

from contestants.loader import shuffled
from contestants.workload import COVARIATES, Batch, Workload


def sequential(work: Workload) -> Iterator[Any]:
    frame = pd.read_parquet(work.path)
    keys = {"group_cols": "series", "time_col": "t"}
    data = SequentialTorchTrainingDataset(
        TimeSeries.from_group_dataframe(frame, value_cols="y", **keys),
        future_covariates=TimeSeries.from_group_dataframe(frame, value_cols=list(COVARIATES), **keys),
        input_chunk_length=work.history,
        output_chunk_length=work.horizon,
        use_static_covariates=False,
    )
    return shuffled(data, work, TorchForecastingModel._batch_collate_fn)


def columns(batch: Any, _: Workload) -> Batch:
    past, _, past_covariates, future_covariates, _, _, future = batch
    covariates = torch.cat([past_covariates, future_covariates], dim=1)
    return {"y": torch.cat([past, future], dim=1)[:, :, 0], **dict(zip(COVARIATES, covariates.unbind(2)))}
