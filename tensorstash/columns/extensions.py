"""Extension types of Arrow, whose values may mean more than the plain type that stores them."""

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tensorstash.columns.arrays import filled, of_numbers
from tensorstash.common.aliases import meant_by
from tensorstash.errors import DataError

_NAME, _PARAMETERS = b"ARROW:extension:name", b"ARROW:extension:metadata"  # of a field whose type nobody registered
_TIMES = re.compile("time|date|period|instant|duration", re.IGNORECASE)
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FREQUENCY = re.compile(r'"freq": *"\d*([A-Za-z]+)(?:-([A-Z]{3}))?"')  # a multiple has the numbers of its unit
_FINE, _OF_NUMPY = ("ms", "us", "ns"), {"d": "D", "h": "h", "m": "m", "s": "s"}
_MONTHS_OF = {"mo": 1, "q": 3, "y": 12}
_FURTHEST = 1 << 38  # number of a period; years of it fit into seconds of 64 bits

Begins = Callable[[pa.Array], pa.Array]


def extension_of(field: pa.Field) -> tuple[str, str]:
    """The name and the parameters of the extension type of a field; empty texts if it has none."""
    if isinstance(field.type, pa.BaseExtensionType):
        serialize = getattr(field.type, "__arrow_ext_serialize__", lambda: str(field.type).encode())
        return field.type.extension_name, serialize().decode("utf-8", "replace")
    metadata = field.metadata or {}
    name, parameters = (metadata.get(key, b"").decode("utf-8", "replace") for key in (_NAME, _PARAMETERS))
    return name, parameters


def is_opaque(field: pa.Field) -> bool:
    """Whether stored values do not say what they mean: those of another system, and times as plain numbers or bytes.

    Texts say it, and so do times of Arrow and structs, whose fields have types of their own.
    """
    name, _ = extension_of(field)
    stored = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not name or not (pa.types.is_primitive(stored) or pa.types.is_fixed_size_binary(stored)):
        return False
    if pa.types.is_temporal(stored) or pa.types.is_boolean(stored):
        return False
    is_time = _TIMES.search(name) is not None and periods_of(field) is None
    return is_time or name == "arrow.opaque" or name.startswith("duckdb.")


def periods_of(field: pa.Field) -> tuple[pa.DataType, Begins] | None:
    """For periods of pandas, such as months: the type of the times at which they begin, and what computes them."""
    name, parameters = extension_of(field)
    frequency = _FREQUENCY.search(parameters) if name == "pandas.period" else None
    if frequency is None or (meant := meant_by(frequency[1])) is None:
        return None
    unit, anchor = meant.removeprefix("1"), frequency[2] or ""
    arrow = pa.timestamp(unit if unit in _FINE else "s")
    return arrow, lambda numbers: _begins(numbers, unit, anchor, arrow)


def _begins(periods: pa.Array, unit: str, anchor: str, arrow: pa.DataType) -> pa.Array:
    """The time at which each period begins, by its number from 1970 on; years and weeks are named by where they end."""
    import pyarrow.compute as pc  # here, because a process that only attaches does without it

    if unit in _FINE:
        return periods.cast(arrow)
    values = filled(periods, 0)
    if np.any(np.abs(values) > _FURTHEST):
        raise DataError(f"Periods must begin within 64 bits of seconds; there are some of '1{unit}' that do not.")
    if unit in _MONTHS_OF:
        starts = (values * _MONTHS_OF[unit] - (11 - _MONTHS.index(anchor or "DEC"))).astype("M8[M]")
    elif unit == "w":
        starts = ((values - 1) * 7 + _DAYS.index(anchor or "SUN") - 3).astype("M8[D]")
    else:
        first = np.array("1970-01-01", "M8[D]")
        starts = np.busday_offset(first, values) if unit == "bd" else values.astype(f"M8[{_OF_NUMPY[unit]}]")
    seconds = of_numbers(starts.astype("M8[s]").view(np.int64))
    return pc.if_else(periods.is_valid(), seconds, pa.scalar(None, pa.int64())).cast(arrow)
