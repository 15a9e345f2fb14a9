"""What `print` shows of windows."""

from collections.abc import Sequence

from tensorstash.gather.span import Span
from tensorstash.windows.intervals import Intervals
from tensorstash.windows.layout import Layout


def as_text(layout: Layout, spans: Sequence[Span], windows: Intervals, stride: int, filled: bool) -> str:
    """One line; `filled` says whether slots may be empty."""
    step = f" every {layout.slots.frequency.text}" if layout.slots.frequency else ""
    return (
        f"Windows: {len(windows):,} of {layout.history} + {layout.horizon} {'slots' if filled else 'rows'}{step}, "
        f"stride {stride}, in {len(windows.base):,} intervals of {len(layout.offsets) - 1:,} entities; "
        f"{', '.join(map(str, spans))}"
    )
