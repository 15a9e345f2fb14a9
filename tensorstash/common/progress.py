"""The progress of a load: a bar for its user."""

import time
import warnings
from threading import RLock

from tqdm import TqdmWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)  # in a notebook without ipywidgets the bar is one of text
    from tqdm.auto import tqdm

DELAY = 1.0  # seconds after which the bar of a phase is shown that is short in most loads


class Bar(tqdm):  # type: ignore[misc]
    """A bar of tqdm without its monitor thread, so that a load leaves nothing running."""

    monitor_interval = 0
    # tqdm's own lock is shared with forked processes: if one is killed while it holds the lock, the others hang
    _lock = RLock()

    def begin(self, phase: str) -> None:
        """Count from 0 again, in another phase of the work."""
        self.set_description_str(phase, refresh=False)
        self.reset()


def bar_of(total: int | None, phase: str, shown: bool | None) -> Bar:
    """A bar of rows; `shown` is `progress=` of a load, and `None` shows it on a terminal.

    Without a total, as of a stream, it is shown from a second on.
    """
    hidden, delay = None if shown is None else not shown, 0 if total else DELAY
    return Bar(total=total, desc=phase, unit=" rows", unit_scale=True, delay=delay, disable=hidden)


class Progress:
    """Counts the values written by all threads, and shows them as rows, because columns may be at different rows."""

    def __init__(self, bar: Bar, values: int) -> None:
        """Advance the bar until `values` are done."""
        self._values = max(values, 1)
        self._lock = RLock()
        self._done = self._nbytes = 0
        self._began = time.monotonic()
        self._bar = bar

    def add(self, values: int, nbytes: int) -> None:
        """Count values, of `nbytes` bytes, that have been written."""
        with self._lock:
            self._done += values
            self._nbytes += nbytes
            speed = self._nbytes / max(time.monotonic() - self._began, 1e-6) / 1e6
            self._bar.set_postfix_str(f"{speed:,.0f} MB/s", refresh=False)
            self._bar.update(self._bar.total * self._done / self._values - self._bar.n)
