"""darts: `SequentialTorchTrainingDataset` and the `DataLoader` that `TorchForecastingModel.fit` builds."""

from collections.abc import Iterator
from typing import Any

import torch
from darts import TimeSeries
from darts.models.forecasting.torch_forecasting_model import TorchForecastingModel
from darts.utils.data import SequentialTorchTrainingDataset
from torch.utils.data import DataLoader

from feeds.frame import scaled_frame
from feeds.task import KNOWN, Batch, Task


class Sequential:
    """The batches of a `DataLoader` over the data set by the names of the task."""

    def __init__(self, task: Task) -> None:
        frame, self.task = scaled_frame(task), task
        targets, others = list(task.columns[: task.targets]), list(task.columns[task.targets :])
        keys: dict[str, Any] = {"group_cols": "run", "time_col": "t", "drop_group_cols": "run"}
        static = {"static_cols": list(task.static)} if task.static else {}
        data = SequentialTorchTrainingDataset(
            TimeSeries.from_group_dataframe(frame, value_cols=targets, **static, **keys),
            past_covariates=TimeSeries.from_group_dataframe(frame, value_cols=others, **keys) if others else None,
            future_covariates=TimeSeries.from_group_dataframe(frame, value_cols=list(KNOWN), **keys),
            input_chunk_length=task.history,
            output_chunk_length=task.horizon,
            use_static_covariates=bool(task.static),
        )
        options: dict[str, Any] = {"num_workers": task.workers, "collate_fn": TorchForecastingModel._batch_collate_fn}
        self.loader = DataLoader(data, task.batch, shuffle=True, drop_last=True, **options)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        for past, others, known, future_known, static, _, target in self.loader:
            yield {
                "past": past if others is None else torch.cat([past, others], 2),
                "known": torch.cat([known, future_known], 1),
                "target": target,
                **({"static": static[:, 0].long()} if self.task.static else {}),
            }


def sequential(task: Task) -> Any:
    return Sequential(task)
