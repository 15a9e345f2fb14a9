"""Windowed time-series batches for PyTorch, from Parquet, CSV or Arrow columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import tensorstash.common.forks  # noqa: F401  registers its fork handlers before any fork
from tensorstash.common.public import NAMES

if TYPE_CHECKING:  # type checkers and editors cannot read a table
    __version__: str
    from tensorstash import cluster as cluster
    from tensorstash import errors as errors
    from tensorstash import plot as plot
    from tensorstash.batches.loader import Loader as Loader
    from tensorstash.columns.path import path as path
    from tensorstash.columns.spec import column as column
    from tensorstash.columns.spec import hashed as hashed
    from tensorstash.columns.spec import is_valid as is_valid
    from tensorstash.columns.time_fields import calendar as calendar
    from tensorstash.gather.each import each as each
    from tensorstash.gather.span import Draw as Draw
    from tensorstash.ingest.load import load as load
    from tensorstash.ingest.load import plan as plan
    from tensorstash.ingest.plan import Plan as Plan
    from tensorstash.sampling.blocks import Blocks as Blocks
    from tensorstash.sampling.by_time import ByTime as ByTime
    from tensorstash.sampling.lanes import Lanes as Lanes
    from tensorstash.sampling.mix import Mix as Mix
    from tensorstash.sampling.per_entity import PerEntity as PerEntity
    from tensorstash.sampling.sampler import Sampler as Sampler
    from tensorstash.sampling.weighted import Weighted as Weighted
    from tensorstash.segments import shared as shared
    from tensorstash.serving.open import open as open  # noqa: A004  ts.open is the natural name
    from tensorstash.stash.open import attach as attach
    from tensorstash.stash.stash import Stash as Stash
    from tensorstash.transforms.cast import Cast as Cast
    from tensorstash.transforms.cross import Cross as Cross
    from tensorstash.transforms.instance_norm import InstanceNorm as InstanceNorm
    from tensorstash.transforms.pack import PackSequences as PackSequences
    from tensorstash.transforms.scaler import Scaler as Scaler
    from tensorstash.windows.during import During as During
    from tensorstash.windows.windows import Windows as Windows

__all__ = sorted(NAMES)  # noqa: PLE0605

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name in NAMES:  # on first use, to keep `import tensorstash` fast
            home = import_module(f"tensorstash.{NAMES[name].home}")
            value = home if NAMES[name].kind == "module" else getattr(home, name)
        elif name == "__version__":
            value = import_module("importlib.metadata").version("tensorstash")
        else:
            raise AttributeError(f"module 'tensorstash' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names only: subpackages and their files are not part of the interface."""
    return __all__
