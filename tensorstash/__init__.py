"""Windowed time-series batches for PyTorch, from Parquet columns that are loaded once into memory.

`load` slices the named columns out of a source and holds them as a `Stash`, a dict of tensors; `Windows` numbers every
valid window of it; `Loader` iterates over batches of windows, in the order of a `Sampler`.
"""

from tensorstash.calendar import calendar as calendar
from tensorstash.cast import Cast as Cast
from tensorstash.cross import crossed as crossed
from tensorstash.errors import ColumnError as ColumnError
from tensorstash.errors import DataError as DataError
from tensorstash.errors import NoMemoryError as NoMemoryError
from tensorstash.errors import SchemaError as SchemaError
from tensorstash.errors import SegmentError as SegmentError
from tensorstash.errors import SourceError as SourceError
from tensorstash.hashing import hashed as hashed
from tensorstash.instance import InstanceNorm as InstanceNorm
from tensorstash.inventory import collect as collect
from tensorstash.inventory import remove as remove
from tensorstash.inventory import segments as segments
from tensorstash.load import load as load
from tensorstash.loader import Loader as Loader
from tensorstash.order import Blocks as Blocks
from tensorstash.order import Lanes as Lanes
from tensorstash.plan import Plan as Plan
from tensorstash.plan import plan as plan
from tensorstash.plot import plot_coverage as plot_coverage
from tensorstash.plot import plot_series as plot_series
from tensorstash.sampler import Sampler as Sampler
from tensorstash.scaling import Scaler as Scaler
from tensorstash.schema import column as column
from tensorstash.schema import is_valid as is_valid
from tensorstash.stash import Stash as Stash
from tensorstash.stash import attach as attach
from tensorstash.stash import open as open  # noqa: A004  ts.open is the natural name
from tensorstash.windows import Windows as Windows
