"""Loads without `time=`: the warning that a column of the source holds times."""

import pyarrow as pa

from tensorstash.ingest.request import Request
from tensorstash.sources.locate import is_reordered
from tensorstash.sources.read import Source

_TIMES = {arrow.id for arrow in (pa.timestamp("s"), pa.date32(), pa.date64())}


def forgotten_time(request: Request, source: Source) -> str:
    """A warning if the source has a column of times and neither `time=` nor another argument names one; else empty.

    A list of paths in another order has a warning of its own, and `like=` was warned of when it was loaded.
    """
    if request.time is not None or request.like is not None or request.argument != "columns":
        return ""
    named, types = request.members, zip(source.schema.names, source.schema.types)
    times = [name for name, arrow in types if arrow.id in _TIMES and name not in named]
    if not times or is_reordered(request.source):
        return ""
    return (
        f"Without time= rows keep the order of the source, and windows follow it; column {times[0]!r} of "
        f"{source.label} holds times. Give time={times[0]!r}. If the order is right, name the column in columns=, or "
        "write warnings.filterwarnings('ignore', 'Without time=')."
    )
