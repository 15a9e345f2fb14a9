"""Windowed time-series batches for PyTorch, from Parquet columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from tensorstash import cluster, errors, plot
from tensorstash.batches.loader import Loader
from tensorstash.columns.calendar import calendar
from tensorstash.columns.layout import regular
from tensorstash.columns.per_entity import per_entity
from tensorstash.columns.spec import column, hashed, is_valid
from tensorstash.ingest.load import load
from tensorstash.ingest.plan import Plan, plan
from tensorstash.sampling.by_time import ByTime
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.order import Blocks, Lanes
from tensorstash.sampling.sampler import Sampler
from tensorstash.sampling.weighted import Weighted
from tensorstash.segments import shared
from tensorstash.stash.open import (
    attach,
    open,  # noqa: A004  ts.open is the natural name
)
from tensorstash.stash.stash import Stash
from tensorstash.transforms.cast import Cast
from tensorstash.transforms.cross import Cross
from tensorstash.transforms.instance_norm import InstanceNorm
from tensorstash.transforms.scaler import Scaler
from tensorstash.windows.windows import Windows

__all__ = [
    "Blocks",
    "ByTime",
    "Cast",
    "Cross",
    "InstanceNorm",
    "Lanes",
    "Loader",
    "Mix",
    "Plan",
    "Sampler",
    "Scaler",
    "Stash",
    "Weighted",
    "Windows",
    "attach",
    "calendar",
    "cluster",
    "column",
    "errors",
    "hashed",
    "is_valid",
    "load",
    "open",
    "per_entity",
    "plan",
    "plot",
    "regular",
    "shared",
]


def __dir__() -> list[str]:
    """The public names alone: rooms and their files are no part of the interface."""
    return __all__
