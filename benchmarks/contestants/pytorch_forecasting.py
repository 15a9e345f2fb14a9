"""pytorch-forecasting: `TimeSeriesDataSet` and its own `DataLoader`, with its scaling switched off."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from pytorch_forecasting import TimeSeriesDataSet
from pytorch_forecasting.data.encoders import TorchNormalizer

from contestants.workload import COVARIATES, Batch, Workload, forever

REALS = (*COVARIATES, "y")  # in this order, which `data_set` checks


def data_set(work: Workload) -> Any:
    data = TimeSeriesDataSet(
        pd.read_parquet(work.path),
        time_idx="t",
        target="y",
        group_ids=["series"],
        min_encoder_length=work.history,
        max_encoder_length=work.history,
        min_prediction_length=work.horizon,
        max_prediction_length=work.horizon,
        time_varying_known_reals=list(COVARIATES),
        time_varying_unknown_reals=["y"],
        target_normalizer=TorchNormalizer(method="identity"),
        scalers=dict.fromkeys(COVARIATES),
    )
    assert tuple(data.reals) == REALS
    return data


def shuffled(work: Workload) -> Iterator[Any]:
    options: dict[str, Any] = {"num_workers": work.workers, "persistent_workers": work.workers > 0}
    return forever(data_set(work).to_dataloader(train=True, batch_size=work.batch, **options))


def columns(batch: Any, _: Workload) -> Batch:
    window = torch.cat([batch[0]["encoder_cont"], batch[0]["decoder_cont"]], dim=1)
    return dict(zip(REALS, window.unbind(2)))
