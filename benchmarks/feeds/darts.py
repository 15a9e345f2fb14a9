"""darts: `SequentialTorchTrainingDataset` and the `DataLoader` that `TorchForecastingModel.fit` builds."""

from collections.abc import Iterator
from typing import Any

import torch
from darts import TimeSeries
from darts.utils.data import SequentialTorchTrainingDataset
from darts.utils.data.torch_datasets.utils import _batch_collate_fn_train
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
        options: dict[str, Any] = {"num_workers": task.workers, "collate_fn": _batch_collate_fn_train}
        self.loader = DataLoader(data, task.batch, shuffle=True, drop_last=True, **options)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.loader:
            past, others = batch.past_target, batch.past_covariates
            yield {
                "past": past if others is None else torch.cat([past, others], 2),
                "known": torch.cat([batch.historic_future_covariates, batch.future_covariates], 1),
                "target": batch.future_target,
                **({"static": batch.static_covariates[:, 0].long()} if self.task.static else {}),
            }


def sequential(task: Task) -> Any:
    return Sequential(task)
