"""Calls into the compiled kernel with numpy arrays; only for use if `library.LIBRARY` is not `None`.

Structs of plans are made once and keep the arrays they point to alive. Arrays must be contiguous and of the right
dtype, which is checked here because C sees only addresses. A call releases the GIL.
"""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native import library
from tensorstash.native.caches import STREAMED_FROM

if TYPE_CHECKING:
    from tensorstash.native.versions import Moments, Versions

_DONE = -1


@dataclass(frozen=True, slots=True)
class Guide:
    """Consecutive pieces of the numbers from 0 on, piece k from `ends[k - 1]` to `ends[k]`, and a guide table."""

    records: Int64s  # (k, 1 or 2) the end of each piece, ascending, and its base: one cache line serves both
    shift: int
    table: Int32s  # table[i >> shift] is the piece of the number (i >> shift) << shift

    @property
    def ends(self) -> Int64s:
        """(k,) where each piece ends."""
        return self.records[:, 0]

    @property
    def base(self) -> Int64s:
        """(k,) what `locate` adds to the numbers of each piece."""
        return self.records[:, 1]


class Fragments(NamedTuple):
    """Consecutive rows without an empty slot between them; as tensors where torch gathers."""

    first: Any  # (fragments,) the slot of the first row of each, ascending
    row: Any  # (fragments,) that row
    rows: Any  # (fragments,)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The inner nodes of a tree: of the first n numbers, `(rest + n * two_left) // two_weight` go to the left child.

    A child is a later node, or `~k` for leaf k.
    """

    child: Int32s  # (2 * nodes,)
    two_left: Int64s  # (nodes,) as all that follow
    two_weight: Int64s
    rest: Int64s
    ratio: NDArray[np.float64]  # of the left child's weight to the node's
    offset: NDArray[np.float64]  # added to n * ratio, it gives the quotient or one less


@dataclass(frozen=True, slots=True)
class Source:
    """Columns that windows are taken from, all with the same number of rows, and the slots of these rows."""

    columns: Sequence[NDArray[Any]]  # one per span, (rows, ...)
    fragments: Fragments | None = None  # `None`: slots are rows
    guide: Guide | None = None  # of the slots, a piece per fragment


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How windows of `history` slots before their anchor and `horizon` from it on are taken from sources."""

    struct: library.PlanStruct
    sources: NDArray[Any]  # of `library.SourceStruct`
    fragmented: bool  # whether any source has fragments
    first: Int32s | None  # with items as sources: the number of the first item of each source
    kept: tuple[object, ...]  # the objects that the structs point to


def permutations(grids: NDArray[np.uint64]) -> "ctypes.Array[Any]":
    """Permutations of `0..n-1`, one for each row `n, a, b` and six keys of `grids`, with grids of a by b cells."""
    return (library.Permutation * len(grids)).from_buffer_copy(grids.tobytes())


def permute(all_: "ctypes.Array[Any]", positions: Int64s, which: Int32s | None = None) -> Int64s:
    """The ids at positions, of any shape: of the first permutation, or for each position of permutation `which`."""
    ids = np.empty_like(positions)
    at, which_at = _address(positions, np.int64), _address(which, np.int32, positions.size)
    bad = _call("permute", ctypes.addressof(all_), len(all_), which_at, at, positions.size, _address(ids, np.int64))
    _refuse(bad, positions, "Positions must lie in [0, n) of a permutation")
    return ids


def find(within: Guide, numbers: Int64s) -> Int32s:
    """The piece of each number, of any shape."""
    piece = np.empty(numbers.shape, np.int32)
    pieces, to = library.GuideStruct(*_guide(within)), _address(piece, np.int32)
    _refuse(_call("find", pieces, _address(numbers, np.int64), numbers.size, to), numbers)
    return piece


def locate(within: Guide, stride: int, ids: Int64s) -> tuple[Int32s, Int64s]:
    """The piece of each id, of any shape, and `base + stride * id` with the base of that piece."""
    piece, slots = np.empty(ids.shape, np.int32), np.empty_like(ids)
    at, to = _address(ids, np.int64), (_address(slots, np.int64), _address(piece, np.int32))
    _refuse(_call("locate", library.GuideStruct(*_guide(within)), stride, at, ids.size, *to), ids)
    return piece, slots


def first_rows(ascending: Int64s, low: Int64s, high: Int64s, bounds: Int64s) -> Int64s:
    """For each range `[low, high)` of ascending numbers, the first whose number is at least the bound, or `high`."""
    first, size = np.empty_like(low), low.size
    ranges = (_address(array, np.int64, size) for array in (low, high, bounds))
    to = _address(first, np.int64)
    _refuse(_call("first_rows", _address(ascending, np.int64), len(ascending), *ranges, size, to), low)
    return first


def pick(of: "Versions", at: "Moments", slots: int, every: int | None) -> Int64s:
    """The rows of windows by their times, `(windows, slots)`, -1 for an empty slot; `every`: the ticks of a bucket."""
    rows, windows = np.empty((at.low.size, slots), np.int64), at.low.size
    versions = library.VersionsStruct(
        _address(of.times, np.int64),
        _address(of.known, np.int64, of.times.size),
        _address(of.reach, np.int64, of.times.size // 64),
        of.times.size,
        of.unit,
        every or 0,
        slots,
        of.spacing,
        of.all,
    )
    moments = library.MomentsStruct(*(_address(array, np.int64, windows) for array in at), windows)
    _refuse(_call("pick", versions, moments, _address(rows, np.int64)), at.low)
    return rows


def descend(nodes: Nodes, numbers: Int64s) -> tuple[Int32s, Int64s]:
    """The leaf that each number reaches, and how many smaller numbers reach the same leaf."""
    size = len(nodes.two_left)
    integers = (_address(array, np.int64, size) for array in (nodes.two_left, nodes.two_weight, nodes.rest))
    floats = (_address(array, np.float64, size) for array in (nodes.ratio, nodes.offset))
    tree = library.TreeStruct(_address(nodes.child, np.int32, 2 * size), *integers, *floats, size)
    leaf, index = np.empty(numbers.shape, np.int32), np.empty_like(numbers)
    to = _address(leaf, np.int32), _address(index, np.int64)
    bad = _call("descend", tree, _address(numbers, np.int64), numbers.size, *to)
    _refuse(bad, numbers, "Numbers must lie in [0, 2**48)")
    return leaf, index


def draw(ends: Int64s, table: Int32s | Int64s, shift: int, keys: tuple[int, int], positions: Int64s) -> Int64s:
    """The owner of the upper 52 bits of each position's hash: weight i owns the numbers from `ends[i - 1]` up.

    Number `c << shift` has the owner `table[c]`.
    """
    width = table.itemsize
    where = _address(ends, np.int64), _address(table, np.int32 if width == 4 else np.int64)
    shares = library.Shares(*where, len(ends), len(table), shift, width)
    owners = np.empty_like(positions)
    at, to = _address(positions, np.int64), _address(owners, np.int64)
    _call("draw", shares, *keys, at, positions.size, to)
    return owners


def compile_plan(
    spans: Sequence[library.SpanStruct],
    sources: Sequence[Source],
    history: int,
    horizon: int,
    *,
    by_item: bool = False,
) -> KernelPlan:
    """Spans and sources as the C struct that a gather takes; the columns decide the sizes of rows in the spans.

    With `by_item` each item of a row is a source of its own, in order; the columns of a source then have rows of one
    length.
    """
    first = sources[0].columns
    structs = (library.SpanStruct * len(spans))(*spans)
    for span, column in zip(structs, first):
        span.row_bytes, span.item_bytes = column.itemsize if by_item else column[:1].nbytes, column.itemsize
    described = np.array([*map(_source, sources)], library.SourceStruct)
    columns = np.array([[_address(column, first[k].dtype) for k, column in enumerate(s.columns)] for s in sources])
    widths = np.array([math.prod(source.columns[0].shape[1:]) for source in sources])
    if by_item:
        item = np.arange(widths.sum()) - (widths.cumsum() - widths).repeat(widths)
        columns = columns.repeat(widths, axis=0) + item[:, None] * [column.itemsize for column in first]
        described = described.repeat(widths)
        described["width"] = widths.repeat(widths)
    columns = columns.astype(np.uintp)
    sizes = len(spans), len(described), history, horizon, by_item, STREAMED_FROM
    return KernelPlan(
        library.PlanStruct(structs, described.ctypes.data, columns.ctypes.data, *sizes),
        described,
        any(source.fragments is not None for source in sources),
        np.cumsum([0, *widths[:-1]], dtype=np.int32) if by_item else None,
        (structs, columns, *sources),
    )


def with_fragments(plan: KernelPlan, fragments: Fragments, guide: Guide) -> KernelPlan:
    """The same plan with other fragments, the same ones in all sources."""
    struct, sources = library.PlanStruct.from_buffer_copy(plan.struct), plan.sources.copy()
    for name, value in zip(("first", "row", "count", "guide"), _fragments(fragments, guide)):
        sources[name] = value
    struct.sources = sources.ctypes.data
    return KernelPlan(struct, sources, True, plan.first, (plan, fragments, guide))


def gather(  # noqa: PLR0917  in the order of the struct
    plan: KernelPlan,
    anchors: Int64s,
    out: Sequence[int],
    observed: Sequence[int] | None = None,
    which: Int32s | None = None,
    skips: Int64s | None = None,
    threads: int = 1,
) -> None:
    """Fill buffers: windows at `anchors`, `(size,)`, each from the source number `which`.

    `out` and `observed`, `(spans,)`, are addresses per span: of its values, `(size, length, ...)`, and of the flags
    that say whether a slot has a row (0: no flags). `skips`, `(draws, size)`, are the slots of the source between the
    first slot of a span with that draw and the first one that is not empty. If a slot of a window is not in the source,
    `IndexError` is raised and nothing is written. Up to `threads` threads copy large batches.
    """
    size, draws = len(anchors), 0 if skips is None else len(skips)
    places = np.empty_like(anchors) if plan.fragmented else None
    spans = plan.struct.span_count
    to, seen = _addresses(out, spans), None if observed is None else _addresses(observed, spans)
    batch = library.BATCH.pack(
        _address(anchors, np.int64),
        _address(which, np.int32, size),
        _address(places, np.int64),
        ctypes.addressof(to),
        0 if seen is None else ctypes.addressof(seen),
        _address(skips, np.int64, draws * size),
        size,
        draws,
        threads,
    )
    _refuse(_call("gather", plan.struct, batch), anchors, "Windows must lie in their source")


def take(  # noqa: PLR0917  as `gather`
    plan: KernelPlan,
    rows: Int64s,
    out: Sequence[int],
    observed: Sequence[int],
    which: Int32s | None = None,
    threads: int = 1,
) -> None:
    """Fill buffers with rows in any order, `(size, slots)`, -1 for an empty slot; otherwise as `gather`.

    All spans of the plan have as many slots.
    """
    size, spans = len(rows), plan.struct.span_count
    to, seen = _addresses(out, spans), _addresses(observed, spans)
    source = _address(which, np.int32, size)
    batch = library.BATCH.pack(0, source, 0, ctypes.addressof(to), ctypes.addressof(seen), 0, size, 0, threads)
    bad = _call("take", plan.struct, batch, _address(rows, np.int64, size * plan.struct.spans[0].length))
    if bad >= 0:
        raise IndexError(f"Rows must lie in their source; one of window {bad} does not.")


def _addresses(numbers: Sequence[int], spans: int) -> "ctypes.Array[Any]":
    if len(numbers) != spans:
        raise TypeError(f"The kernel takes {spans} addresses, got {len(numbers)}.")
    return (ctypes.c_void_p * spans)(*numbers)


def best_fit(sizes: Int64s, length: int) -> tuple[Int64s, Int64s, int]:
    """The row of each window and its place there, placed largest first, and the number of rows; 0 for sizes of 0."""
    windows = len(sizes)
    row, start, following = (np.empty(windows, np.int64) for _ in range(3))
    rooms, first = np.zeros(length // 64 + 1, np.uint64), np.empty(length + 1, np.int64)
    struct = library.Rooms(_address(rooms, np.uint64), _address(first, np.int64), _address(following, np.int64))
    to = _address(row, np.int64), _address(start, np.int64)
    return row, start, _call("best_fit", _address(sizes, np.int64), windows, length, struct, *to)


def count(observed: NDArray[np.bool_]) -> Int64s:
    """How many are true in each row of `(windows, slots)`."""
    counts = np.empty(len(observed), np.int64)
    _call("count", _address(observed, np.bool_), *observed.shape, _address(counts, np.int64))
    return counts


def packed(  # noqa: PLR0917  in the order of the struct
    observed: NDArray[np.bool_] | None, sizes: Int64s, place: Int64s, used: Int64s, slots: int, length: int
) -> library.Packed:
    """Windows of `slots` slots, each to the slots from `place` on of rows of `length` slots, of which some are used.

    `observed`, `(windows, slots)`, says which slots are moved, `sizes` of each window; `None` moves all. The arrays
    must outlive the struct.
    """
    moved = _address(observed, np.bool_, len(place) * slots)
    addresses = _address(sizes, np.int64, len(place)), _address(place, np.int64), _address(used, np.int64)
    return library.Packed(moved, *addresses, len(place), slots, len(used), length)


def pack(how: library.Packed, source: int, target: int, nbytes: int) -> None:
    """Move rows of `nbytes` bytes between two addresses, and write 0 into unused slots."""
    _call("pack", how, source, target, nbytes)


def mark(how: library.Packed, segments: Int32s, positions: Int32s) -> None:
    """Write the number of the window of each slot in its row, and the slot's position, both `(rows * length,)`."""
    numbers, room = np.empty(how.windows, np.int32), how.rows * how.length
    to = _address(segments, np.int32, room), _address(positions, np.int32, room)
    _call("mark", how, _address(numbers, np.int32), *to)


def _source(source: Source) -> tuple[Any, ...]:
    """The fields of a `library.SourceStruct`."""
    rows = {len(column) for column in source.columns}
    if len(rows) != 1:
        raise ValueError(f"The columns of a source must have one number of rows, got {sorted(rows)}.")
    if source.fragments is None or source.guide is None:
        return rows.pop(), 1, 0, 0, 0, (0,) * 6
    return rows.pop(), 1, *_fragments(source.fragments, source.guide)


def _fragments(fragments: Fragments, guide: Guide) -> tuple[Any, ...]:
    return *(_address(array, np.int64, len(guide.records)) for array in fragments), _guide(guide)


def _guide(guide: Guide) -> tuple[int, ...]:
    """The fields of a `library.GuideStruct`."""
    records, table = guide.records, guide.table
    return _address(records, np.int64), _address(table, np.int32), *records.shape, len(table), guide.shift


def _address(array: NDArray[Any] | None, dtype: Any, size: int | None = None) -> int:
    """Where an array is that the kernel can take, or null for `None`."""
    if array is None:
        return 0
    if array.dtype == dtype and (size is None or array.size == size):
        try:  # takes a fifth of the time of numpy's attribute
            return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
        except (TypeError, ValueError):  # it is in several pieces, read-only or empty
            if array.flags.c_contiguous:
                return int(array.__array_interface__["data"][0])
    raise TypeError(
        f"The kernel takes arrays in one piece of {np.dtype(dtype)}{'' if size is None else f' and {size} items'}; "
        f"got {array.size} items of {array.dtype}. Use np.ascontiguousarray."
    )


def _call(name: str, *arguments: object) -> int:
    """Call a function of the kernel. It returns the index of the first item out of range, or a negative number."""
    code: int = getattr(library.LIBRARY, f"tensorstash_{name}")(*arguments)
    if code < _DONE:
        raise ValueError(f"The arguments of the kernel's {name} contradict each other.")
    return code


def _refuse(bad: int, numbers: Int64s, rule: str = "Numbers must lie in their source") -> None:
    if bad >= 0:
        raise IndexError(f"{rule}, got {numbers.flat[bad]} at index {bad}.")
