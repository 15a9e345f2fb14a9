"""xbatcher: a batch for each window, shuffled and stacked by a `DataLoader` over its `MapDataset`."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import xarray as xr
import xbatcher
from xbatcher.loaders.torch import MapDataset

from contestants.loader import shuffled
from contestants.workload import NAMES, Batch, Workload


def windows(work: Workload) -> Iterator[Any]:
    frame = pd.read_parquet(work.path, columns=list(NAMES))
    table = frame.to_numpy().T.reshape(len(NAMES), work.series, work.steps)
    data = xr.DataArray(table, dims=("column", "series", "t"))
    sizes = {"column": len(NAMES), "series": 1, "t": work.width}
    return shuffled(MapDataset(xbatcher.BatchGenerator(data, sizes, {"t": work.width - 1})), work)


def columns(batch: Any, _: Workload) -> Batch:
    return dict(zip(NAMES, batch[:, :, 0].unbind(1)))
