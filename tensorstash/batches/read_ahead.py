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
from tensorstash.windows.intervals import Ranges, union
from tensorstash.windows.placement import Placement
from tensorstash.windows.slots import rows_from
from tensorstash.windows.time_spans import Candidates, TimeSpan

# some of the steps that were located together, made in one call, and their windows
Portion = tuple[Steps, range, Located]

_AHEAD = 2  # portions; more are no faster, and take more of the page cache
_WORTH = 4  # pages: asking for fewer takes longer than waiting for them
_SECTOR = 512  # bytes: the system counts what a thread reads in such blocks
_RANGES_PER_READ = 16  # asking for so many takes less time than waiting for one page

_THREAD = getattr(resource, "RUSAGE_THREAD", -1)  # only Linux counts per thread


def is_on_disk(stash: Stash) -> bool:
    """Whether the pages of a stash may have to be read from a disk."""
    return _THREAD >= 0 and stash.segment.is_saved


def read_ahead(chain: Chain, portions: Iterable[Portion]) -> Iterator[Portion]:
    """The portions, each when those after it are known, whose pages are asked for if the last ones were read."""
    waiting = deque[Portion]()
    read = (0, 0)  # pages, for the last two portions: windows in order need new ones only now and then
    for portion in portions:
        waiting.append(portion)
        if min(read) >= _WORTH:
            asked = ranges(chain, portion[2])
            if sum(len(starts) for starts, _ in asked.values()) <= min(read) * _RANGES_PER_READ:
                for segment, (starts, stops) in asked.items():
                    segment.will_need(starts, stops)
        if len(waiting) > _AHEAD:
            before = used()
            yield waiting.popleft()  # it has been gathered when the next one is taken
            read = read[1], pages_read(before, used())
    yield from waiting


def used() -> resource.struct_rusage:
    """What this thread has used so far."""
    return resource.getrusage(_THREAD)


def pages_read(before: resource.struct_rusage, after: resource.struct_rusage) -> int:
    """Pages that a thread had read from a disk; where blocks are not counted, the faults that waited for one."""
    blocks = after.ru_inblock - before.ru_inblock
    return max(after.ru_majflt - before.ru_majflt, blocks * _SECTOR // mmap.PAGESIZE)


def _layout(stash: Stash, columns: Sequence[str]) -> tuple[Int64s, Int64s]:
    """The first byte of each column in the file, and the bytes of a row, `(columns, 1)` each."""
    tensors = [stash.segment.tensors[name] for name in dict.fromkeys(columns)]
    rows = [info.nbytes // max(1, info.shape[0]) for info in tensors]
    return np.array([[info.start] for info in tensors]), np.array(rows)[:, None]


def _slots(span: Span, row: int) -> list[tuple[int, int]]:
    """The slots of a span; where its steps pass over whole pages, one by one."""
    if span.step * row <= mmap.PAGESIZE:
        return [(span.start, span.start + (len(span) - 1) * span.step + 1)]
    return [(at, at + 1) for at in range(span.start, span.stop, span.step)]


def ranges(chain: Chain, located: Located) -> dict[Segment, Ranges]:
    """The pages of windows in each file on a disk, as ranges of bytes.

    Rows that are picked one by one are picked for this and again for the batch, in less time than the disk takes.
    """
    found: dict[Segment, list[Ranges]] = {}
    for placement, which, _, anchors in chain.by_placement(located):
        if is_on_disk(placement.stash):
            found.setdefault(placement.stash.segment, []).extend(_in_slots(placement, anchors))
        for time_span, rows in zip(placement.time_spans, located.stretches):
            if is_on_disk(time_span.stash):
                found.setdefault(time_span.stash.segment, []).append(_in_time(time_span, some_of(rows, which)))
    return {segment: _pages(parts, segment.size) for segment, parts in found.items() if parts}


def _in_slots(placement: Placement, anchors: Int64s) -> Iterator[Ranges]:
    """The bytes of the rows in slots."""
    columns: dict[tuple[int, int], list[str]] = {}
    for span in placement.slot_spans:
        for name in span.columns:
            for slots in _slots(span, placement.stash[name][:1].nbytes):
                columns.setdefault(slots, []).append(name)
    for slots, names in columns.items():
        start, row = _layout(placement.stash, names)
        low, high = (rows_from(placement.slots, anchors + slot) for slot in slots)
        yield start + low * row, start + high * row


def _in_time(time_span: TimeSpan, found: Stretches | Candidates) -> Ranges:
    """The bytes of the rows in a span in time, and of their times if batches have ages."""
    start, row = _layout(time_span.stash, [span.column for span in (*time_span.spans, *time_span.ages)])
    low, high = time_span.ranges(found)
    return start + low * row, start + high * row


def _pages(parts: Sequence[Ranges], size: int) -> Ranges:
    """The pages of ranges of bytes in a file of a size."""
    low, high = (np.concatenate([edges.reshape(-1) for edges in every]) for every in zip(*parts))
    filled, page = low < high, mmap.PAGESIZE
    low, high = union(low[filled] // page * page, -(-high[filled] // page) * page)
    return low, np.minimum(high, size)
