"""What windows are, in a few plain values that are equal wherever the windows are equal."""

import zlib
from collections.abc import Sequence
from functools import reduce
from typing import Any

from tensorstash.gather.span import Span
from tensorstash.windows.intervals import Intervals
from tensorstash.windows.layout import Layout


def fingerprint(layout: Layout, spans: Sequence[Span], windows: Intervals, stride: int, filled: bool) -> dict[str, Any]:
    """Counts, times, spans and a checksum, without paths or values; `filled` says whether slots may be empty."""
    stash = layout.stash
    first, last = stash.time_range
    return {
        "windows": len(windows),
        "entities": len(layout.offsets) - 1,
        "rows": stash.rows,
        "first_time": first,
        "last_time": last,
        "spans": {span.name: [span.column, span.begin, span.end, span.step] for span in spans},
        "stride": stride,
        "runs": _checksum(layout, windows, filled),
    }


def _checksum(layout: Layout, windows: Intervals, filled: bool) -> int:
    arrays = [windows.base, windows.ends]
    if filled:
        arrays += [layout.slots.first, layout.slots.row]
    return reduce(lambda crc, array: zlib.crc32(array.tobytes(), crc), arrays, 0)
