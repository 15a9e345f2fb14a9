"""Windowed time-series batches for PyTorch, from Parquet columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import tensorstash.common.forks  # noqa: F401  registers its fork handlers before any fork

if TYPE_CHECKING:  # type checkers and editors cannot read the tables below
    __version__: str
    from tensorstash import cluster as cluster
    from tensorstash import errors as errors
    from tensorstash import plot as plot
    from tensorstash.batches.loader import Loader as Loader
    from tensorstash.columns.calendar import calendar as calendar
    from tensorstash.columns.spec import column as column
    from tensorstash.columns.spec import hashed as hashed
    from tensorstash.columns.spec import is_valid as is_valid
    from tensorstash.gather.each import each as each
    from tensorstash.gather.span import Draw as Draw
    from tensorstash.ingest.load import Plan as Plan
    from tensorstash.ingest.load import load as load
    from tensorstash.ingest.load import plan as plan
    from tensorstash.sampling.blocks import Blocks as Blocks
    from tensorstash.sampling.by_time import ByTime as ByTime
    from tensorstash.sampling.lanes import Lanes as Lanes
    from tensorstash.sampling.mix import Mix as Mix
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

# the file that defines each public name; a name is imported on first use, to keep `import tensorstash` fast
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
    "Plan": "ingest.load",
    "Sampler": "sampling.sampler",
    "Scaler": "transforms.scaler",
    "Stash": "stash.stash",
    "Weighted": "sampling.weighted",
    "Windows": "windows.windows",
    "attach": "stash.open",
    "calendar": "columns.calendar",
    "column": "columns.spec",
    "each": "gather.each",
    "hashed": "columns.spec",
    "is_valid": "columns.spec",
    "load": "ingest.load",
    "open": "serving.open",
    "plan": "ingest.load",
}
_MODULES = {"cluster": "cluster", "errors": "errors", "plot": "plot", "shared": "segments.shared"}
__all__ = sorted([*_HOMES, *_MODULES])  # noqa: PLE0605

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(import_module(f"tensorstash.{_HOMES[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"tensorstash.{_MODULES[name]}")
        elif name == "__version__":
            value = import_module("importlib.metadata").version("tensorstash")
        else:
            raise AttributeError(f"module 'tensorstash' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names only: subpackages and their files are not part of the interface."""
    return __all__
