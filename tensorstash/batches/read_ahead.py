"""Reading ahead from a disk: the pages of the windows of the next steps are asked for before they are gathered.

One page fault at a time leaves a disk idle most of the time; asked for together, pages arrive several times as fast.
Asking costs time where the pages are in memory already, so it is done only while the disk is being read.
"""

import mmap
import resource
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tensorstash.common.dtypes import Int64s
from tensorstash.common.records import some_of
from tensorstash.gather.rows import Stretches
from tensorstash.gather.span import Span
from tensorstash.sampling.steps import Steps
from tensorstash.segments.segment import Segment
from tensorstash.stash.stash import Stash
from tensorstash.windows.chain import Chain, Located
from tensorstash.windows.intervals import union
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import rows_from
from tensorstash.windows.time_spans import Candidates, TimeSpan

# some of the steps that were located together, made in one call, and their windows
Portion = tuple[Steps, range, Located]

# windows of one stash: the slots of their anchors, and where the rows of each span in time are
InStash = tuple[Placement, tuple[Int64s, Sequence[Stretches | Candidates]]]
Ranges = tuple[Int64s, Int64s]  # the first byte of each range, and the byte after its last one

_AHEAD = 2  # portions; more are no faster, and take more of the page cache
_WORTH = 4  # pages: asking for fewer takes longer than waiting for them
_SECTOR = 512  # bytes: the system counts what a thread reads in such blocks
_RANGES_PER_READ = 16  # asking for so many takes less time than waiting for one page

_THREAD = getattr(resource, "RUSAGE_THREAD", -1)  # only Linux counts per thread


def is_on_disk(stash: Stash) -> bool:
    """Whether the pages of a stash may have to be read from a disk."""
    return _THREAD >= 0 and stash.segment.is_saved


class ReadAhead:
    """Asks a disk for the pages of the portions that come next."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._next: deque[Portion] = deque()
        # pages read for the last two portions: windows in order need new pages only now and then
        self._read = (0, 0)
        self._before = used()

    def ahead(self, portions: Iterator[Portion]) -> Iterator[Portion]:
        """The portions, each when those after it are known, whose pages are asked for if the last ones were read."""
        for portion in portions:
            self._next.append(portion)
            if min(self._read) >= _WORTH:
                self._ask(portion)
            if len(self._next) > _AHEAD:
                yield self._taken()
        while self._next:
            yield self._taken()

    def _taken(self) -> Portion:
        self._before = used()
        return self._next.popleft()

    def count(self) -> None:
        """When a portion was gathered: count the pages that were read for it."""
        self._read = (self._read[1], pages_read(self._before, used()))

    def _ask(self, portion: Portion) -> None:
        _, _, located = portion
        asked = ranges(
            (placement, (anchors, [some_of(rows, which) for rows in located.stretches]))
            for placement, which, _, anchors in self._chain.parts(located)
        )
        if sum(len(starts) for starts, _ in asked.values()) <= min(self._read) * _RANGES_PER_READ:
            for segment, (starts, stops) in asked.items():
                segment.will_need(starts, stops)


def used() -> resource.struct_rusage:
    """What this thread has used so far."""
    return resource.getrusage(_THREAD)


def pages_read(before: resource.struct_rusage, after: resource.struct_rusage) -> int:
    """Pages that a thread had read from a disk; where blocks are not counted, the faults that waited for one."""
    blocks = after.ru_inblock - before.ru_inblock
    return max(after.ru_majflt - before.ru_majflt, blocks * _SECTOR // mmap.PAGESIZE)


def _places(stash: Stash, columns: Sequence[str]) -> tuple[Int64s, Int64s]:
    """The first byte of each column in the file, and the bytes of a row, `(columns, 1)` each."""
    entries = [stash.segment.tensors[name] for name in dict.fromkeys(columns)]
    rows = [entry.nbytes // max(1, entry.shape[0]) for entry in entries]
    return np.array([[entry.start] for entry in entries]), np.array(rows)[:, None]


def _slots(span: Span, row: int) -> list[tuple[int, int]]:
    """The slots of a span; where its steps pass over whole pages, one by one."""
    if span.step * row <= mmap.PAGESIZE:
        return [(span.start, span.start + (len(span) - 1) * span.step + 1)]
    return [(at, at + 1) for at in range(span.start, span.stop, span.step)]


def ranges(windows: Iterable[InStash]) -> dict[Segment, Ranges]:
    """The pages of windows in each file on a disk, as ranges of bytes.

    Rows that are picked one by one are picked for this and again for the batch, in less time than the disk takes.
    """
    found: dict[Segment, list[Ranges]] = {}
    for placement, (anchors, stretches) in windows:
        if is_on_disk(placement.stash):
            found.setdefault(placement.stash.segment, []).extend(_in_slots(placement, anchors))
        for time_span, rows in zip(placement.time_spans, stretches):
            if is_on_disk(time_span.stash):
                found.setdefault(time_span.stash.segment, []).append(_in_time(time_span, rows))
    return {segment: _pages(parts, segment.size) for segment, parts in found.items() if parts}


def _in_slots(placement: Placement, anchors: Int64s) -> Iterator[Ranges]:
    """The bytes of the rows in slots."""
    columns: dict[tuple[int, int], list[str]] = {}
    for span in placement.spans:
        for name in span.columns:
            for slots in _slots(span, placement.stash[name][:1].nbytes):
                columns.setdefault(slots, []).append(name)
    for slots, names in columns.items():
        start, row = _places(placement.stash, names)
        low, high = (rows_from(placement.slots, anchors + slot) for slot in slots)
        yield start + low * row, start + high * row


def _in_time(time_span: TimeSpan, found: Stretches | Candidates) -> Ranges:
    """The bytes of the rows in a span in time, and of their times if batches have ages."""
    start, row = _places(time_span.stash, [span.column for span in time_span.spans])
    low, high = time_span.ranges(found)
    return start + low * row, start + high * row


def _pages(parts: Sequence[Ranges], size: int) -> Ranges:
    """The pages of ranges of bytes in a file of a size."""
    low, high = (np.concatenate([edges.reshape(-1) for edges in every]) for every in zip(*parts))
    filled, page = low < high, mmap.PAGESIZE
    low, high = union(low[filled] // page * page, -(-high[filled] // page) * page)
    return low, np.minimum(high, size)
