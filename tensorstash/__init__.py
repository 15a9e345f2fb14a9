"""Windowed time-series batches for PyTorch, from Parquet columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import tensorstash.common.forks  # noqa: F401  it has to see every fork from now on

if TYPE_CHECKING:  # what type checkers and editors see of the tables below
    from tensorstash import cluster as cluster
    from tensorstash import errors as errors
    from tensorstash import plot as plot
    from tensorstash.batches.loader import Loader as Loader
    from tensorstash.columns.calendar import calendar as calendar
    from tensorstash.columns.spec import column as column
    from tensorstash.columns.spec import hashed as hashed
    from tensorstash.columns.spec import is_valid as is_valid
    from tensorstash.gather.span import Draw as Draw
    from tensorstash.ingest.load import load as load
    from tensorstash.ingest.plan import Plan as Plan
    from tensorstash.ingest.plan import plan as plan
    from tensorstash.sampling.blocks import Blocks as Blocks
    from tensorstash.sampling.by_time import ByTime as ByTime
    from tensorstash.sampling.lanes import Lanes as Lanes
    from tensorstash.sampling.mix import Mix as Mix
    from tensorstash.sampling.sampler import Sampler as Sampler
    from tensorstash.sampling.weighted import Weighted as Weighted
    from tensorstash.segments import shared as shared
    from tensorstash.stash.stash import Stash as Stash
    from tensorstash.stash.stash import attach as attach
    from tensorstash.stash.stash import open as open  # noqa: A004  ts.open is the natural name
    from tensorstash.transforms.cast import Cast as Cast
    from tensorstash.transforms.cross import Cross as Cross
    from tensorstash.transforms.instance_norm import InstanceNorm as InstanceNorm
    from tensorstash.transforms.pack import PackSequences as PackSequences
    from tensorstash.transforms.scaler import Scaler as Scaler
    from tensorstash.windows.during import During as During
    from tensorstash.windows.windows import Windows as Windows

# where a public name is defined: it is imported when it is first used, so that nobody waits for what he does not use
_HOMES = {
    "Blocks": "sampling.blocks",
    "ByTime": "sampling.by_time",
    "Cast": "transforms.cast",
    "Cross": "transforms.cross",
    "Draw": "gather.span",
    "During": "windows.during",
    "InstanceNorm": "transforms.instance_norm",
    "Lanes": "sampling.lanes",
    "Loader": "batches.loader",
    "Mix": "sampling.mix",
    "PackSequences": "transforms.pack",
    "Plan": "ingest.plan",
    "Sampler": "sampling.sampler",
    "Scaler": "transforms.scaler",
    "Stash": "stash.stash",
    "Weighted": "sampling.weighted",
    "Windows": "windows.windows",
    "attach": "stash.stash",
    "calendar": "columns.calendar",
    "column": "columns.spec",
    "hashed": "columns.spec",
    "is_valid": "columns.spec",
    "load": "ingest.load",
    "open": "stash.stash",
    "plan": "ingest.plan",
}
_MODULES = {"cluster": "cluster", "errors": "errors", "plot": "plot", "shared": "segments.shared"}
__all__ = sorted([*_HOMES, *_MODULES])  # noqa: PLE0605

if not TYPE_CHECKING:  # else any name would do

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(import_module(f"tensorstash.{_HOMES[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"tensorstash.{_MODULES[name]}")
        else:
            raise AttributeError(f"module 'tensorstash' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names alone: rooms and their files are no part of the interface."""
    return __all__
