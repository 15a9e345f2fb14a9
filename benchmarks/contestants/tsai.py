"""tsai: `SlidingWindow` of each series, which copies every window, then its `TSDataLoaders`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from tsai.data.core import get_ts_dls
from tsai.data.preparation import SlidingWindow

from contestants.workload import NAMES, Batch, Workload, forever


def windows(work: Workload) -> Iterator[Any]:
    cut = SlidingWindow(work.history, horizon=work.horizon, stride=1, get_x=list(NAMES), get_y=list(NAMES))
    parts = [cut(part) for _, part in pd.read_parquet(work.path).groupby("series", sort=False)]
    past, future = (np.concatenate([part[k] for part in parts]) for k in range(2))
    every = list(range(len(past)))
    splits = every, every[: work.batch]  # it wants windows for validation too
    return forever(get_ts_dls(past, future, splits=splits, bs=work.batch, inplace=True, num_workers=0).train)


def columns(batch: Any, _: Workload) -> Batch:
    window = torch.cat([torch.as_tensor(part.data) for part in batch], dim=2)
    return dict(zip(NAMES, window.unbind(1)))
