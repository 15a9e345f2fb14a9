"""The file as the libraries that begin with a frame get it: scaled once, every stretch without a gap as a series."""

import numpy as np
import pandas as pd

from feeds.task import Task, runs


def scaled_frame(task: Task) -> pd.DataFrame:
    """The columns `run`, `t`, and those of the task; stretches that are too short for a window are left out."""
    frame = pd.read_parquet(task.path)
    names = list(task.scaled)
    values = frame[names].to_numpy(np.float64)
    frame[names] = ((values - values.mean(0)) / values.std(0)).astype(np.float32)
    first, rows = runs({name: frame[name].to_numpy() for name in ("series", "t")})
    frame["run"] = np.repeat(np.arange(len(first)), rows)
    return frame[np.repeat(rows >= task.width, rows)].drop(columns="series")
