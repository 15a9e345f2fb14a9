"""Windowed time-series batches for PyTorch, from Parquet columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from types import ModuleType as _Module

from tensorstash.batches.loader import Loader as Loader
from tensorstash.columns.calendar import calendar as calendar
from tensorstash.columns.spec import column as column
from tensorstash.columns.spec import hashed as hashed
from tensorstash.columns.spec import is_valid as is_valid
from tensorstash.errors import ColumnError as ColumnError
from tensorstash.errors import DataError as DataError
from tensorstash.errors import NoMemoryError as NoMemoryError
from tensorstash.errors import SchemaError as SchemaError
from tensorstash.errors import SegmentError as SegmentError
from tensorstash.errors import SourceError as SourceError
from tensorstash.ingest.load import load as load
from tensorstash.ingest.plan import Plan as Plan
from tensorstash.ingest.plan import plan as plan
from tensorstash.plot import plot_coverage as plot_coverage
from tensorstash.plot import plot_series as plot_series
from tensorstash.sampling.order import Blocks as Blocks
from tensorstash.sampling.order import Lanes as Lanes
from tensorstash.sampling.sampler import Sampler as Sampler
from tensorstash.segments.shared import collect as collect
from tensorstash.segments.shared import remove as remove
from tensorstash.segments.shared import segments as segments
from tensorstash.stash.stash import Stash as Stash
from tensorstash.stash.stash import attach as attach
from tensorstash.stash.stash import open as open  # noqa: A004  ts.open is the natural name
from tensorstash.transforms.cast import Cast as Cast
from tensorstash.transforms.cross import crossed as crossed
from tensorstash.transforms.instance_norm import InstanceNorm as InstanceNorm
from tensorstash.transforms.scaler import Scaler as Scaler
from tensorstash.windows.windows import Windows as Windows


def __dir__() -> list[str]:
    """The public names alone: rooms and modules are no part of the interface."""
    return sorted(
        name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, _Module)
    )
