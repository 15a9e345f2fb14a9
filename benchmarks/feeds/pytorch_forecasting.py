"""pytorch-forecasting: `TimeSeriesDataSet` and its own `DataLoader`, over a frame that is scaled already."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from pytorch_forecasting import TimeSeriesDataSet
from pytorch_forecasting.data.encoders import NaNLabelEncoder, TorchNormalizer

from feeds.frame import scaled_frame
from feeds.task import CODES, KNOWN, Batch, Task

CODE = "{:02}"


class Shuffled:
    """The batches of its `DataLoader` by the names of the task."""

    def __init__(self, task: Task) -> None:
        frame, self.task = scaled_frame(task), task
        for name in task.static:  # categories must be texts
            frame[name] = frame[name].map(CODE.format)
        every = pd.Series(
            [CODE.format(code) for code in range(CODES)]
        )  # or those without a window would have no number
        data = TimeSeriesDataSet(
            frame,
            time_idx="t",
            target=task.columns[0],
            group_ids=["run"],
            min_encoder_length=task.history,
            max_encoder_length=task.history,
            min_prediction_length=task.horizon,
            max_prediction_length=task.horizon,
            static_categoricals=list(task.static),
            categorical_encoders={name: NaNLabelEncoder().fit(every) for name in task.static},
            time_varying_known_reals=list(KNOWN),
            time_varying_unknown_reals=list(task.columns),
            target_normalizer=TorchNormalizer(method="identity"),
            scalers=dict.fromkeys((*KNOWN, *task.columns[1:])),
        )
        assert tuple(data.reals) == (*KNOWN, *task.columns)
        self.loader = data.to_dataloader(train=True, batch_size=task.batch, num_workers=task.workers)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        known = len(KNOWN)
        for inputs, (target, _) in self.loader:
            past, future = inputs["encoder_cont"], inputs["decoder_cont"]
            yield {
                "past": past[:, :, known:],
                "known": torch.cat([past[:, :, :known], future[:, :, :known]], 1),
                "target": target[:, :, None],
                **({"static": inputs["encoder_cat"][:, 0]} if self.task.static else {}),
            }


def shuffled(task: Task) -> Any:
    return Shuffled(task)
