"""Calls into the compiled kernel with numpy arrays; only for use if `library.LIBRARY` is not `None`.

Structs that are slow to make (guides, sources, plans) are made once and keep the arrays they point to alive. Arrays
must be contiguous and of the right dtype, which is checked here because C sees only addresses. A call releases the
GIL.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorstash.native import library

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Floats = NDArray[np.float64]
Addresses = NDArray[np.uintp]

_DONE = -1


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of the numbers from 0 on, with a guide table."""

    records: Int64s  # (pieces, 1 or 2) the end of each, ascending, and its base
    table: Int32s  # table[i >> shift] is the piece of the number (i >> shift) << shift
    struct: library.Guide


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The inner nodes of a tree: of the first n numbers, `(rest + n * two_left) // two_weight` go to the left child.

    A child is a later node, or `~k` for leaf k.
    """

    child: Int32s  # (2 * nodes,)
    two_left: Int64s  # (nodes,) as all that follow
    two_weight: Int64s
    rest: Int64s
    ratio: Floats  # of the left child's weight to the node's
    offset: Floats  # added to n * ratio, it gives the quotient or one less


@dataclass(frozen=True, slots=True)
class Source:
    """Columns that windows are taken from, all with the same number of rows, and the slots of these rows."""

    columns: Sequence[NDArray[Any]]  # one per span, (rows, ...)
    fragments: tuple[Int64s, Int64s, Int64s] | None  # first slot, first row and rows of each; None: slots are rows
    pieces: Pieces | None  # of the slots, one per fragment


@dataclass(frozen=True, slots=True)
class Span:
    """Slots `begin, begin + step, ...`, `length` of them, relative to the anchor of a window."""

    begin: int
    length: int
    step: int
    empty: int  # the bits of an item where there is no row


@dataclass(frozen=True, slots=True)
class Plan:
    """How windows of `history` slots before their anchor and `horizon` from it on are taken from sources."""

    struct: library.Plan
    spans: int
    kept: tuple[object, ...]  # the objects that the struct points to


class Part(NamedTuple):
    """The addresses of a tensor `(windows, slots, items)` to scale and of its two constants, both `(groups, items)`."""

    values: int
    factor: int
    shift: int
    slots: int
    items: int
    item_bytes: int  # 4 for float, 8 for double, of all three
    rounds_once: bool  # whether only the sum is rounded, or the product before it too


def permutations(grids: Uint64s) -> "ctypes.Array[Any]":
    """Permutations of `0..n-1`, one for each row `n, a, b` and six keys of `grids`, with grids of a by b cells."""
    return (library.Permutation * len(grids)).from_buffer_copy(grids.tobytes())


def permute(all_: "ctypes.Array[Any]", positions: Int64s, which: Int32s | None = None) -> Int64s:
    """The ids at positions, of any shape: of the first permutation, or for each position of permutation `which`."""
    ids = np.empty_like(positions)
    at, own = _address(positions, np.int64), 0 if which is None else _address(which, np.int32, positions.size)
    bad = _call("permute", ctypes.addressof(all_), len(all_), own, at, positions.size, _address(ids, np.int64))
    if bad >= 0:
        raise IndexError(
            f"A position lies in [0, n) of a permutation that is there; got {positions.flat[bad]} at {bad}."
        )
    return ids


def pieces(records: Int64s, table: Int32s, shift: int) -> Pieces:
    """Pieces with their guide table; `records` is `(pieces, 1)`, or `(pieces, 2)` for `locate`."""
    addresses = _address(records, np.int64), _address(table, np.int32)
    return Pieces(records, table, library.Guide(*addresses, *records.shape, len(table), shift))


def find(within: Pieces, numbers: Int64s) -> Int32s:
    """The piece of each number, of any shape."""
    found = np.empty(numbers.shape, np.int32)
    _refuse(_call("find", within.struct, _address(numbers, np.int64), numbers.size, _address(found, np.int32)), numbers)
    return found


def locate(within: Pieces, stride: int, ids: Int64s) -> Int64s:
    """`base + stride * id` for each id, of any shape, with the base of its piece."""
    slots = np.empty_like(ids)
    at, to = _address(ids, np.int64), _address(slots, np.int64)
    _refuse(_call("locate", within.struct, stride, at, ids.size, to), ids)
    return slots


def descend(nodes: Nodes, numbers: Int64s) -> tuple[Int32s, Int64s]:
    """The leaf that each number reaches, and how many smaller numbers reach the same leaf."""
    count = len(nodes.two_left)
    integers = (_address(one, np.int64, count) for one in (nodes.two_left, nodes.two_weight, nodes.rest))
    floats = (_address(one, np.float64, count) for one in (nodes.ratio, nodes.offset))
    tree = library.Tree(_address(nodes.child, np.int32, 2 * count), *integers, *floats, count)
    leaf, index = np.empty(numbers.shape, np.int32), np.empty_like(numbers)
    to = _address(leaf, np.int32), _address(index, np.int64)
    bad = _call("descend", tree, _address(numbers, np.int64), numbers.size, *to)
    if bad >= 0:
        raise IndexError(f"A number lies in [0, 2**48); got {numbers.flat[bad]} at {bad}.")
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


def compile_plan(spans: Sequence[Span], sources: Sequence[Source], history: int, horizon: int) -> Plan:
    """Spans and sources as the C struct that a gather takes."""
    first = sources[0].columns
    own = (library.Span * len(spans))(
        *(
            library.Span(span.begin, span.length, span.step, column[:1].nbytes, column.itemsize, span.empty)
            for span, column in zip(spans, first)
        )
    )
    described = (library.Source * len(sources))(*map(_source, sources))
    columns = np.array([[_address(column, first[k].dtype) for k, column in enumerate(s.columns)] for s in sources])
    columns = columns.astype(np.uintp)
    struct = library.Plan(own, described, columns.ctypes.data, len(spans), len(sources), history, horizon)
    return Plan(struct, len(spans), (own, described, columns, tuple(sources)))


def gather(
    plan: Plan, anchors: Int64s, out: Addresses, observed: Addresses | None = None, which: Int32s | None = None
) -> None:
    """Fill the batches of a few steps: windows at `anchors`, `(steps, size)`, each from the source number `which`.

    `out` and `observed`, `(steps, spans)`, are addresses per batch and span: of its values, `(size, length, ...)`, and
    of the flags that say whether a slot has a row (0: no flags). If a slot of a window is not in the source, this is
    an `IndexError` and nothing is written.
    """
    steps, size = anchors.shape
    places = np.empty_like(anchors)
    batches = library.Batches(
        _address(anchors, np.int64),
        0 if which is None else _address(which, np.int32, anchors.size),
        _address(places, np.int64),
        _address(out, np.uintp, steps * plan.spans),
        0 if observed is None else _address(observed, np.uintp, steps * plan.spans),
        size,
        steps,
    )
    _refuse(_call("gather", plan.struct, batches), anchors)


def scale(parts: Sequence[Part], group: Int64s | None, windows: int, groups: int) -> None:
    """`values * factor + shift` in place for each part, which has `windows` windows and constants of `groups` groups.

    Each window takes the constants of its `group`, `(windows,)`; with `None` all windows take those of group 0.
    """
    described = (library.Scaled * len(parts))(*parts)  # type: ignore[misc]  # ctypes takes tuples for structs
    own = 0 if group is None else _address(group, np.int64, windows)
    bad = _call("scale", ctypes.addressof(described), len(parts), own, groups, windows)
    if bad >= 0 and group is not None:
        raise IndexError(f"A group lies in [0, {groups}); got {group[bad]} at {bad}.")


def _source(source: Source) -> library.Source:
    rows = {len(column) for column in source.columns}
    if len(rows) != 1:
        raise ValueError(f"The columns of a source have one number of rows; got {sorted(rows)}.")
    if source.fragments is None or source.pieces is None:
        return library.Source(rows.pop())
    counts = (_address(one, np.int64, len(source.pieces.records)) for one in source.fragments)
    return library.Source(rows.pop(), *counts, source.pieces.struct)


def _address(array: NDArray[Any], dtype: Any, size: int | None = None) -> int:
    """The address of an array, which must be contiguous and of this dtype and size."""
    if array.dtype != dtype or not array.flags.c_contiguous or (size is not None and array.size != size):
        raise TypeError(
            f"The kernel takes arrays in one piece of {np.dtype(dtype)}{'' if size is None else f' and {size} items'}; "
            f"got {array.size} items of {array.dtype}. Use np.ascontiguousarray."
        )
    address: int = array.__array_interface__["data"][0]
    return address


def _call(name: str, *arguments: object) -> int:
    """Call a function of the kernel: the number of the first index out of range, or a negative number."""
    code: int = getattr(library.LIBRARY, f"tensorstash_{name}")(*arguments)
    if code < _DONE:
        raise ValueError(f"The arguments of the kernel's {name} contradict each other.")
    return code


def _refuse(bad: int, numbers: Int64s) -> None:
    if bad >= 0:
        raise IndexError(f"The windows of a call lie in their source; number {numbers.flat[bad]} at {bad} does not.")
