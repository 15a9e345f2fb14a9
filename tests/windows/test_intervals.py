"""The inside of `windows/intervals.py`: finding the windows of a batch touches few pages, however many there are."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorstash.native.kernel import Guide
from tensorstash.windows.intervals import Intervals, intervals, locate

_BATCH = 64
_PAGE = os.sysconf("SC_PAGESIZE")
_CLEAR_REFS = Path("/proc/self/clear_refs")

pytestmark = pytest.mark.skipif(
    not os.access(_CLEAR_REFS, os.W_OK), reason="this system does not count the pages that a process touches"
)


class Watched:
    """Copies of arrays in mappings of their own, whose touched pages the kernel counts."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []
        self._starts: set[int] = set()

    def copy(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        memory = mmap.mmap(-1, max(array.nbytes, 1), mmap.MAP_SHARED)  # never merged with other mappings
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        copied = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
        copied[:] = array
        self._maps.append(memory)
        self._starts.add(copied.__array_interface__["data"][0])
        return copied

    def touched(self, work: Callable[[], object]) -> int:
        """The pages of all arrays that `work` reads or writes."""
        _CLEAR_REFS.write_text("1")
        work()
        pages, inside = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            head = line.split(maxsplit=1)[0]
            if "-" in head:
                inside = int(head.split("-")[0], 16) in self._starts
            elif inside and head == "Referenced:":
                pages += int(line.split()[1]) * 1024 // _PAGE
        return pages


def watched(within: Intervals) -> tuple[Intervals, Watched]:
    """The same intervals, with all of their tables where touched pages are counted."""
    watch = Watched()
    records, table = (watch.copy(array) for array in (within.guide.records, within.guide.table))
    copied = Intervals(Guide(records, within.guide.shift, table), within.stride)  # type: ignore[arg-type]
    return copied, watch


def uneven(runs: int, windows: int) -> Intervals:
    """Runs of very different lengths that hold this many windows."""
    weights = np.random.default_rng(runs).pareto(1.5, runs) + 0.01
    counts = np.maximum(1, (weights / weights.sum() * windows).astype(np.int64))
    return intervals(np.cumsum(counts + 7) - counts, counts, 1)


@pytest.mark.parametrize("windows", [10**5, 10**9, 10**12])
@pytest.mark.parametrize("runs", [1, 1000, 10**6])
def test_finding_the_windows_of_a_batch_touches_as_many_pages_however_many_there_are(runs: int, windows: int) -> None:
    within, watch = watched(uneven(runs, max(windows, 2 * runs)))
    ids = np.random.default_rng(0).integers(len(within), size=_BATCH)
    expected = within.guide.base[np.searchsorted(within.guide.ends, ids, "right")] + ids * within.stride
    found = []
    pages = watch.touched(lambda: found.append(locate(within, ids)))
    np.testing.assert_array_equal(found[0], expected)
    # a look into the table, a few ends, a base: each on a page of its own
    assert 0 < pages <= 8 * _BATCH
    if runs == 10**6:
        assert (
            watch.touched(lambda: within.guide.ends.sum()) * _PAGE >= within.guide.ends.nbytes > 3 * 8 * _BATCH * _PAGE
        )
