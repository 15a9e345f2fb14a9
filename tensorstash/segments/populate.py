"""Mapping many pages at once, which takes a third of the time of the page faults that it saves."""

import contextlib
import mmap
from concurrent.futures import ThreadPoolExecutor

from tensorstash.common.threads import threads

POPULATE_READ, POPULATE_WRITE = 22, 23  # MADV_POPULATE_... of Linux 5.14, which mmap does not name
_PIECE = 1 << 26


def populate(memory: mmap.mmap, how: int, begin: int, nbytes: int) -> None:
    """Map pages, by several threads; piece by piece, because no signal is handled until the kernel is done with one."""

    def work(at: int) -> None:
        # on older kernels and macOS the pages are mapped when they are touched
        with contextlib.suppress(AttributeError, OSError, ValueError):
            memory.madvise(how, at, min(_PIECE, begin + nbytes - at))

    if nbytes <= _PIECE:
        work(begin)
        return
    pool = ThreadPoolExecutor(threads(), "tensorstash-map")
    try:
        for _ in pool.map(work, range(begin, begin + nbytes, _PIECE)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
