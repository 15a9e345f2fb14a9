"""Look-up of the piece that contains a number, with a guide table that narrows the search: by the kernel or numpy."""

import numpy as np

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native import kernel, library
from tensorstash.native.kernel import Guide

_GUIDE_STEPS = 4  # beyond these a binary search is cheaper


def guide(records: Int64s) -> Guide:
    """A guide table of two to four entries per piece, whatever the lengths of the pieces."""
    ends = records[:, 0]
    if not len(ends):
        return Guide(records, 0, np.empty(0, np.int32))
    shift = (int(ends[-1]) // (4 * len(ends))).bit_length()
    counts = (ends + ((1 << shift) - 1)) >> shift  # entries of the table up to and including each piece
    counts[1:] -= counts[:-1].copy()  # of each piece; numpy.diff(prepend=) takes several times as long
    return Guide(records, shift, np.repeat(np.arange(len(ends), dtype=np.int32), counts))


def find(pieces: Guide, numbers: Int64s) -> Int32s:
    """The piece of each number in `[0, ends[-1])`, of any shape."""
    if library.LIBRARY is None:
        return find_in_numpy(pieces, numbers)
    return kernel.find(pieces, np.ascontiguousarray(numbers))


def locate(pieces: Guide, stride: int, numbers: Int64s) -> tuple[Int32s, Int64s]:
    """The piece k of each number, of any shape, and `base[k] + stride * number`."""
    if library.LIBRARY is None:
        found = find_in_numpy(pieces, numbers)
        return found, pieces.base[found] + numbers * stride
    return kernel.locate(pieces, stride, np.ascontiguousarray(numbers))


def find_in_numpy(pieces: Guide, numbers: Int64s) -> Int32s:
    """`find` in numpy: a look-up in the table, then a few steps."""
    ends, k = pieces.ends, pieces.table[numbers >> pieces.shift]
    for _ in range(_GUIDE_STEPS):
        beyond = ends[k] <= numbers
        if not beyond.any():
            return k
        k += beyond
    return np.searchsorted(ends, numbers, "right").astype(np.int32)


def first_rows(ascending: Int64s, low: Int64s, high: Int64s, bounds: Int64s) -> Int64s:
    """For each range `[low, high)` of ascending numbers, the index of the first that is at least its bound, or `high`.

    All ranges are bisected together: numpy's `searchsorted` has one range for all bounds.
    """
    if library.LIBRARY is not None:
        return kernel.first_rows(*map(np.ascontiguousarray, (ascending, low, high, bounds)))
    return first_rows_in_numpy(ascending, low, high, bounds)


def first_rows_in_numpy(ascending: Int64s, low: Int64s, high: Int64s, bounds: Int64s) -> Int64s:
    """`first_rows` in numpy, all ranges at once."""
    low, high = low.copy(), high.copy()
    if not len(ascending):
        return low
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        is_before = ascending[np.minimum(middle, len(ascending) - 1)] < bounds
        is_before &= low < high
        low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, middle)
    return low
