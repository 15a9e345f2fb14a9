"""darts: `SequentialTorchTrainingDataset` and the `DataLoader` that `TorchForecastingModel.fit` builds."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from darts import TimeSeries
from darts.utils.data import SequentialTorchTrainingDataset
from darts.utils.data.torch_datasets.utils import _batch_collate_fn_train

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
    return shuffled(data, work, _batch_collate_fn_train)


def columns(batch: Any, _: Workload) -> Batch:
    covariates = torch.cat([batch.historic_future_covariates, batch.future_covariates], dim=1)
    values = torch.cat([batch.past_target, batch.future_target], dim=1)
    return {"y": values[:, :, 0], **dict(zip(COVARIATES, covariates.unbind(2)))}
