"""By hand in numba: a compiled loop copies the windows of a chunk into one result, whose views are the batches."""

from collections.abc import Iterator
from typing import Any

import numba
import torch

from contestants.hand import CHUNK, Gather, load_packed_huge, reused
from contestants.workload import Workload


def loop(table: Any, starts: Any, out: Any) -> None:
    """Fill `out` `(windows, width * columns)` from `table` `(rows, columns)`, a window for each of the first rows."""
    flat, columns, size = table.reshape(-1), table.shape[1], out.shape[1]
    for k in numba.prange(len(starts)):
        begin = starts[k] * columns
        window, result = flat[begin : begin + size], out[k]  # of which each index is seen to be inside
        for at in range(size):
            result[at] = window[at]


# compiling is no part of the first batch, and so done with the imports
COPY = {
    threaded: numba.njit("void(float32[:, ::1], int64[::1], float32[:, ::1])", parallel=threaded, nogil=True)(loop)
    for threaded in (False, True)
}


def gathering(table: torch.Tensor) -> Gather:
    """What copies windows of packed columns into a result, on as many threads as torch has."""
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    numba.set_num_threads(threads)
    copy, rows = COPY[threads > 1], table.numpy()
    return lambda some, out: copy(rows, some.numpy(), out.numpy())


def chunked(work: Workload) -> Iterator[torch.Tensor]:
    return reused(gathering(load_packed_huge(work)), work, max(1, CHUNK // work.batch))
