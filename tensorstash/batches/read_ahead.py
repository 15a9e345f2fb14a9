"""Reading ahead from a disk: the pages of the windows of the next steps are asked for before they are gathered.

One page fault at a time leaves a disk idle most of the time; asked for together, pages arrive several times as fast.
Asking costs time where the pages are in memory already, so it is done only while the disk is being read.
"""

import mmap
import resource
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorstash.batches.assemble import Portion
from tensorstash.batches.buffers import Built
from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import Span
from tensorstash.windows.slots import rows_from
from tensorstash.windows.windows import Windows

_AHEAD = 2  # portions; more are no faster, and take more of the page cache
_WORTH = 4  # pages: to ask for fewer takes longer than to wait for them
_SECTOR = 512  # bytes, of which the system counts the blocks that a thread reads
_RANGES_PER_READ = 16  # to ask for so many takes less time than to wait for one page

_THREAD = getattr(resource, "RUSAGE_THREAD", -1)  # only Linux counts for each thread


class Source(Protocol):
    """What makes batches of windows."""

    def needed(self, group: Any, steps: range) -> Iterator[tuple[Windows, Int64s]]:
        """The windows that these steps hold, and the slots of their anchors."""

    def build(self, group: Any, steps: range) -> list[Built]:
        """The batches of these steps."""


def is_on_disk(windows: Windows) -> bool:
    """Whether the pages of windows may have to be read from a disk."""
    return _THREAD >= 0 and windows.stash._segment.is_saved


class ReadAhead:
    """Builds portions, and asks for the pages of those that come next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next: deque[Portion] = deque()
        self._unasked: deque[Portion] = deque()  # the last of these, whose pages were not asked for
        # pages that came from the disk with the last two portions: a stretch of rows in order needs some now and then
        self._read = (0, 0)

    def portions(self, portions: Iterator[Portion]) -> Iterator[Portion]:
        """The same portions, each when the ones behind it are known."""
        for portion in portions:
            self._next.append(portion)
            self._unasked.append(portion)
            if len(self._next) > _AHEAD:
                yield self._taken()
        while self._next:
            yield self._taken()

    def _taken(self) -> Portion:
        portion = self._next.popleft()
        if self._unasked and self._unasked[0] is portion:
            self._unasked.popleft()
        return portion

    def build(self, group: Any, steps: range) -> list[Built]:
        """The batches of these steps."""
        before = used()
        while self._unasked and min(self._read) >= _WORTH:
            self._ask(self._unasked.popleft())
        built = self._source.build(group, steps)
        self._read = (self._read[1], pages_read(before, used()))
        return built

    def _ask(self, portion: Portion) -> None:
        needed = self._source.needed(portion.group, portion.some)
        asked = [(own.stash._segment, ranges(own, anchors)) for own, anchors in needed if is_on_disk(own)]
        if sum(len(begins) for _, (begins, _) in asked) <= min(self._read) * _RANGES_PER_READ:
            for segment, (begins, ends) in asked:
                segment.will_need(begins, ends)


def used() -> resource.struct_rusage:
    """What this thread has used so far."""
    return resource.getrusage(_THREAD)


def pages_read(before: resource.struct_rusage, after: resource.struct_rusage) -> int:
    """Pages that a thread had read from a disk; where blocks are not counted, the faults that waited for one."""
    blocks = after.ru_inblock - before.ru_inblock
    return max(after.ru_majflt - before.ru_majflt, blocks * _SECTOR // mmap.PAGESIZE)


class Piece(NamedTuple):
    """Consecutive slots of windows, and the columns of which they hold the rows."""

    slots: tuple[int, int]  # relative to the anchor
    begin: Int64s  # (columns, 1) the first byte of each in the file
    row: Int64s  # (columns, 1) bytes of a row


def pieces(windows: Windows) -> list[Piece]:
    """What windows need of their file."""
    entries = windows.stash._segment.entries
    columns: dict[tuple[int, int], dict[int, int]] = {}
    for span in windows.spans:
        entry = entries[span.column]
        row = entry.nbytes // max(1, entry.shape[0])
        for slots in _slots(span, row):
            columns.setdefault(slots, {})[entry.begin] = row
    return [
        Piece(slots, *(np.array([*part])[:, None] for part in (own, own.values()))) for slots, own in columns.items()
    ]


def _slots(span: Span, row: int) -> list[tuple[int, int]]:
    """The slots of a span; where its steps pass over whole pages, one by one."""
    if span.step * row <= mmap.PAGESIZE:
        return [(span.begin, span.begin + (len(span) - 1) * span.step + 1)]
    return [(at, at + 1) for at in range(span.begin, span.end, span.step)]


def ranges(windows: Windows, anchors: Int64s) -> tuple[Int64s, Int64s]:
    """The pages of windows with anchors at the slots `anchors`: where ranges of them begin and end in the file."""
    slots, page, begins, ends = windows._layout.slots, mmap.PAGESIZE, [], []
    for piece in pieces(windows):
        low, high = _joined(*(rows_from(slots, anchors + slot) for slot in piece.slots))
        begins.append((piece.begin + low * piece.row).reshape(-1) // page * page)
        ends.append(-(-(piece.begin + high * piece.row).reshape(-1) // page) * page)
    low, high = _joined(np.concatenate(begins), np.concatenate(ends))
    return low, np.minimum(high, windows.stash._segment.size)


def _joined(begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """The same ranges in order, without empty ones, and as one where they overlap or touch."""
    some = np.flatnonzero(begins < ends)
    some = some[np.argsort(begins[some], kind="stable")]  # which is fast where parts are in order
    begins, ends = begins[some], np.maximum.accumulate(ends[some])
    first = np.flatnonzero(np.append(True, begins[1:] > ends[:-1])[: len(begins)])
    return begins[first], ends[np.append(first[1:], len(ends))[: len(first)] - 1]
