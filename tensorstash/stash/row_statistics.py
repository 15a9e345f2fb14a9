"""Statistics of a column over ranges of rows, for each group of rows, in float64.

They are computed block by block, and blocks are merged as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances", 1979.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int64s, as_integers

_BLOCK = 1 << 16  # values at a time: the temporary arrays stay in the cache

Floats = NDArray[np.float64]
# values of a block (items, rows), its groups, the row of the block at which each starts
_Part = tuple[Floats, Int64s, Int64s]


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of a column, `(rows, *pack)`. NaN does not count, nor does a number where `valid` is false."""

    numbers: torch.Tensor
    valid: torch.Tensor | None = None  # bool, of the same shape

    @property
    def pack(self) -> tuple[int, ...]:
        """The dimensions of a row."""
        return tuple(self.numbers.shape[1:])

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Values":
        """Apply a function to the numbers and to the mask."""
        return Values(change(self.numbers), None if self.valid is None else change(self.valid))


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to include, as ascending, disjoint ranges `[low, high)`. A group is consecutive rows of the column."""

    low: Int64s
    high: Int64s
    offsets: Int64s  # (groups + 1,): group k has the rows `[offsets[k], offsets[k + 1])`

    def __len__(self) -> int:
        return int((self.high - self.low).sum())

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.offsets) - 1


def mean_and_variance(column: Values, rows: Rows) -> tuple[Int64s, Floats, Floats]:
    """The number of values, their mean and their variance (divided by that number): `(groups, items)` each.

    The mean of no values is 0; the variance of equal values is exactly 0.
    """
    count, mean, squares = (np.zeros((_items(column), rows.groups)) for _ in range(3))
    for values, groups, starts in _blocks(column, rows):
        sizes = np.diff(starts, append=values.shape[1])
        missing = np.isnan(values)
        # relative to the smallest value, equal values are exactly 0, and the squares lose little to cancellation
        least = np.fmin.reduceat(values, starts, axis=1)
        np.subtract(values, least if len(starts) == 1 else np.repeat(least, sizes, axis=1), out=values)
        new = sizes - np.add.reduceat(missing, starts, axis=1, dtype=np.int64)
        values[missing] = 0
        sums = np.add.reduceat(values, starts, axis=1)
        np.square(values, out=values)
        block_squares = np.add.reduceat(values, starts, axis=1) - sums * sums / np.maximum(new, 1)
        known, before = count[:, groups], mean[:, groups]
        share = new / np.maximum(known + new, 1)
        deviation = np.where(new > 0, least + sums / np.maximum(new, 1) - before, 0)
        mean[:, groups] = before + deviation * share
        squares[:, groups] += np.maximum(block_squares, 0) + deviation * deviation * known * share
        count[:, groups] += new
    return count.T.astype(np.int64), mean.T, (squares / np.maximum(count, 1)).T


def extremes(column: Values, rows: Rows) -> tuple[Int64s, Floats, Floats]:
    """The number of values, the smallest and the largest one: `(groups, items)` each; NaN where there is no value."""
    count = np.zeros((_items(column), rows.groups), np.int64)
    low, high = (np.full(count.shape, np.nan) for _ in range(2))
    for values, groups, starts in _blocks(column, rows):
        count[:, groups] += np.add.reduceat(~np.isnan(values), starts, axis=1, dtype=np.int64)
        low[:, groups] = np.fmin(low[:, groups], np.fmin.reduceat(values, starts, axis=1))
        high[:, groups] = np.fmax(high[:, groups], np.fmax.reduceat(values, starts, axis=1))
    return count.T, low.T, high.T


def flattened(column: Values, rows: Rows) -> tuple[Values, Rows]:
    """The numbers of a pack one after the other, as the rows of a single column; views of contiguous tensors."""
    items = _items(column)
    return column.map(torch.flatten), Rows(rows.low * items, rows.high * items, rows.offsets * items)


def sampled(column: Values, rows: Rows, which: Int64s) -> tuple[Values, Rows]:
    """The values and groups of a sample of the included rows, at the ascending positions `which` among these."""
    ends = np.cumsum(rows.high - rows.low)
    k = np.searchsorted(ends, which, "right")
    index = rows.high[k] - ends[k] + which
    edges = np.array([0, len(index)])
    small = Rows(edges[:1], edges[1:], np.searchsorted(index, rows.offsets).astype(np.int64))
    at = torch.from_numpy(index)
    return column.map(lambda tensor: as_integers(tensor).index_select(0, at).view(tensor.dtype)), small


def _items(column: Values) -> int:
    return math.prod(column.pack)


def _blocks(column: Values, rows: Rows) -> Iterator[_Part]:
    """The rows in blocks, with NaN for excluded rows; blocks without included rows are skipped."""
    size = max(1, _BLOCK // _items(column))
    if not len(rows.low):
        return
    for start in range(int(rows.low[0]), int(rows.high[-1]), size):
        stop = min(start + size, int(rows.high[-1]))
        first, last = np.searchsorted(rows.high, start, "right"), np.searchsorted(rows.low, stop)
        if first == last:
            continue
        block = _by_item(column.numbers[start:stop])
        values = torch.empty(block.shape, dtype=torch.float64).copy_(block).numpy()
        if column.valid is not None:
            values[~_by_item(column.valid[start:stop]).numpy()] = np.nan
        low, high = (np.clip(edges[first:last] - start, 0, stop - start) for edges in (rows.low, rows.high))
        if int((high - low).sum()) < stop - start:
            marks = np.zeros(stop - start + 1, np.int8)
            marks[low] = 1
            marks[high] -= 1
            values[:, np.cumsum(marks[:-1]) == 0] = np.nan
        yield values, *_groups(rows.offsets, start, stop)


def _by_item(block: torch.Tensor) -> torch.Tensor:
    return block.flatten(1).T if block.ndim > 1 else block[None]


def _groups(offsets: Int64s, start: int, stop: int) -> tuple[Int64s, Int64s]:
    """The groups that have rows in a block, and the row of the block at which each starts."""
    first, last = int(np.searchsorted(offsets, start, "right")) - 1, int(np.searchsorted(offsets, stop))
    groups = np.arange(first, last)
    groups = groups[offsets[groups] < offsets[groups + 1]]
    return groups, np.maximum(offsets[groups] - start, 0)


def quantiles(parts: Sequence[tuple[Values, Rows]], at: tuple[float, ...]) -> tuple[Int64s, list[Floats]]:
    """The number of values, and the quantile at each of `at`, interpolated linearly: `(groups, items)` each.

    Several parts are the rows of a column in several stashes, as one group. This needs 8 bytes of memory for each
    included row.
    """
    items, groups = _items(parts[0][0]), parts[0][1].groups
    count, result = np.zeros((items, groups), np.int64), np.empty((len(at), groups, items))
    flat = np.empty(sum(len(rows) for _, rows in parts))
    for item in range(items):
        filled = 0
        for column, rows in parts:
            for values, members, starts in _blocks(_item(column, item), rows):
                is_number = ~np.isnan(values[0])
                count[item, members] += np.add.reduceat(is_number, starts, dtype=np.int64)
                kept = values[0, is_number]
                flat[filled : filled + len(kept)] = kept
                filled += len(kept)
        result[:, :, item] = _group_quantiles(flat, count[item], at)
    return count.T, [*result]


def _item(column: Values, item: int) -> Values:
    return column.map(lambda tensor: tensor.flatten(1)[:, item]) if column.pack else column


def _group_quantiles(flat: Floats, counts: Int64s, at: tuple[float, ...]) -> Floats:
    """The quantiles of groups that follow each other in `flat`, `(len(at), groups)`. It reorders `flat`."""
    result = np.full((len(at), len(counts)), np.nan)
    groups = np.flatnonzero(counts)
    start, last = (np.cumsum(counts) - counts)[groups], counts[groups] - 1
    place = np.array(at)[:, None] * last
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, last)
    for first, count, wanted in zip(start, counts[groups], np.concatenate([below, above]).T):
        flat[first : first + count].partition(wanted)
    low, high, share = flat[start + below], flat[start + above], place - below
    # infinity times 0 would be NaN
    result[:, groups] = np.where((share == 0) | (low == high), low, low + share * (high - low))
    return result
