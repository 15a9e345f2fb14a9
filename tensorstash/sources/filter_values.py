"""Values of `filter=` with their nanoseconds: pyarrow would convert them to `datetime`, which has microseconds."""

import sys
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa


def exact(value: Any) -> Any:
    """The value or collection of values, converted to Arrow here if pyarrow would drop its nanoseconds."""
    if _has_nanoseconds(value):
        return pa.scalar(value.value, _arrow_type(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        fine = next((one for one in value if _has_nanoseconds(one)), None)
        return value if fine is None else pa.array([_count(one, fine) for one in value], _arrow_type(fine))
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.Series) and value.dtype.is_temporal():
        return value.to_arrow()
    return value


def _has_nanoseconds(value: Any) -> bool:
    """Whether a value is a pandas time or duration that `datetime` and `timedelta` cannot hold."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, (pandas.Timestamp, pandas.Timedelta)):
        return False
    return bool(value is not pandas.NaT and value.value % 1000)


def _arrow_type(value: Any) -> pa.DataType:
    zone = getattr(value, "tz", None)
    is_duration = isinstance(value, sys.modules["pandas"].Timedelta)
    return pa.duration("ns") if is_duration else pa.timestamp("ns", None if zone is None else str(zone))


def _count(value: Any, fine: Any) -> int | None:
    """The nanoseconds of a value in a collection whose type is that of `fine`, a pandas value."""
    if value is None:
        return None
    if isinstance(value, (date, timedelta, np.datetime64, np.timedelta64)):
        found = type(fine)(value)
        if _arrow_type(found) == _arrow_type(fine):
            return int(found.value)
    raise TypeError(f"{value!r} does not mean the same as {fine!r}")
