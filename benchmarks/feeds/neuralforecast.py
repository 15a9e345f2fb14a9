"""neuralforecast: its loader of whole series, and the windows that `BaseModel.training_step` cuts from them."""

from collections.abc import Iterator
from typing import Any

import torch
from contestants.neuralforecast import sampled
from contestants.workload import forever
from neuralforecast.models import MLP
from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset

from feeds.frame import scaled_frame
from feeds.task import KNOWN, Batch, Task, read, starts

SERIES = 32  # its default


class Windows:
    """Batches of windows of 32 random series each, made as the lines of `training_step` do."""

    def __init__(self, task: Task) -> None:
        frame, self.task = scaled_frame(task), task
        static = frame.groupby("run", as_index=False)[list(task.static)].first()
        temporal = frame.drop(columns=list(task.static))
        names = {"id_col": "run", "time_col": "t", "target_col": task.columns[0]}
        data, *_ = TimeSeriesDataset.from_df(temporal, static_df=static, **names)
        self.model = MLP(
            h=task.horizon,
            input_size=task.history,
            hist_exog_list=list(task.columns[1:]),
            futr_exog_list=list(KNOWN),
            stat_exog_list=list(task.static),
            windows_batch_size=task.batch,
            batch_size=SERIES,
            training_data_availability_threshold=1.0,  # else some windows are padded with zeros
            scaler_type="identity",
            max_steps=1,
        )
        self.loader = TimeSeriesDataModule(data, batch_size=SERIES, drop_last=True).train_dataloader()
        self.windows = len(starts(read(task), task))

    def __len__(self) -> int:
        return self.windows // self.task.batch

    def __iter__(self) -> Iterator[Batch]:
        for k, batch in enumerate(forever(self.loader)):
            if k == len(self):
                return
            yield self.entries(*sampled(self.model, batch, self.task.batch))

    def entries(self, *parsed: Any) -> Batch:
        past, _, target, _, others, known, static = parsed
        size, history = self.task.batch, self.task.history
        return {
            "past": torch.cat([past.reshape(size, history, 1), others.reshape(size, history, -1)], 2),
            "known": known,
            "target": target.reshape(size, -1, 1),
            "static": static.long(),
        }


def windows(task: Task) -> Any:
    return Windows(task)
