"""Draws with replacement by weights, as functions of (seed, epoch, position); at most 16 bytes per weight."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import unknown
from tensorstash.native import kernel, library
from tensorstash.sampling.hashes import Uint64s, hashes, keys

Floats = NDArray[np.float64]

_BITS = 52  # of a draw: a float64 in [0, 1) represents every multiple of 2**-52 exactly
_BLOCK = 1 << 16  # weights at a time: the temporary arrays stay in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """An order that draws windows with replacement, each with a probability proportional to its weight.

    The draws are a function of (seed, epoch, position). With C the running sum of the weights in float64, in their
    order, weight i owns the numbers from `B[i - 1]` to `B[i]`, where `B[i] = rint(C[i] / C[-1] * 2**52)`. A draw is the
    owner of the upper 52 bits of a hash of (seed, epoch, position). A window with weight 0 is never drawn; one with
    less than 2**-52 of the sum may never be drawn either.

    With `per="entity"`, an entity is drawn in this way, and a second 64-bit hash draws one of the entity's m windows,
    number `hash % m`: the probabilities of these windows differ by a factor of less than 1 + m / 2**63. An entity
    without windows has weight 0.

    Args:
        weights: finite numbers of at least 0, `(windows,)`, or with `per="entity"` `(entities,)` in the order of
            `stash.entities`, or a mapping from the name of each entity to its weight. Or the name of a column: the
            weight of a window is the column's value in the row of the anchor (without a horizon, in the last row of
            the window). With `per="entity"` it is the name of a static column.
        per: `"window"` or `"entity"`.
        count: draws per epoch; by default the number of windows.

    Raises:
        ValueError: a weight is negative, infinite or NaN (the message names the window or entity), all weights are 0,
            or their number is wrong. ColumnError: a column or entity does not exist.

    Example:
        >>> import tensorstash as ts
        >>> windows = ts.Windows(ts.load({"y": [0.0, 1.0, 2.0, 3.0], "rare": [0, 1, 0, 3]}), history=1, columns=["y"])
        >>> loader = ts.Loader(windows, 8, shuffle=ts.Weighted("rare", count=8))
        >>> [batch["y"][:, 0].tolist() for batch in loader]
        [[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 3.0]]
    """

    weights: Any
    per: str = "window"
    count: int | None = None

    def __post_init__(self) -> None:
        if self.per not in ("window", "entity"):
            raise ValueError(f'per= is "window" or "entity"; got {self.per!r}.')
        if not hasattr(self.weights, "__len__"):
            raise TypeError(f"weights= is a list of numbers or the name of a column; got {self.weights!r}.")
        if self.per == "window" and isinstance(self.weights, Mapping):
            raise TypeError('Weights by name are those of entities; got a mapping with per="window". Use per="entity".')
        if self.count is not None:
            at_least(1, self.count, "count")

    def __repr__(self) -> str:
        weights = repr(self.weights) if isinstance(self.weights, str) else f"{len(self.weights):,} weights"
        return f"Weighted({weights}, per={self.per!r}, count={self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The numbers below 2**52 and their owners: weight i owns those from `ends[i - 1]` to `ends[i]`."""

    ends: Int64s  # (n,) ascending; the last is 2**52
    shift: int
    table: Int32s | Int64s  # (cells + 1,) table[c] is the owner of the number c << shift


def window_shares(weighted: Weighted, windows: int) -> Shares:
    """The shares of windows by their weights; a wrong weight, or a wrong number of weights, is an error."""
    return shares_of(_checked(weighted.weights, windows, "window", range(windows)))


def entity_shares(weighted: Weighted, entities: Sequence[Any], first: Int64s) -> Shares:
    """The shares of entities by their weights; entity e has the windows from `first[e]` to `first[e + 1]`."""
    given = weighted.weights
    if isinstance(given, Mapping):
        given = _by_name(given, entities)
    weights = _checked(given, len(entities), "entity", entities)
    some = np.diff(first) > 0
    if not weights[some].any():
        raise ValueError(
            f"At least one entity with windows has a weight above 0; all {int(some.sum()):,} have 0. "
            "Give one of them a weight."
        )
    return shares_of(np.where(some, weights, 0))


def shares_of(weights: NDArray[Any]) -> Shares:
    """The shares of weights, `(n,)`, which the caller has checked: finite, at least 0, and not all 0.

    Raises a `ValueError` if their sum overflows.
    """
    with np.errstate(over="ignore", under="ignore"):
        sums = np.cumsum(weights, dtype=np.float64)
        if not np.isfinite(sums[-1]):
            raise ValueError(
                f"Weights have a sum that float64 can hold; got {len(sums):,} weights up to {weights.max()}. "
                "Divide them by the largest."
            )
        sums /= sums[-1]  # before the scaling by 2**52, which is exact, so that nothing overflows
    sums *= float(1 << _BITS)
    np.rint(sums, out=sums)
    ends = sums.view(np.int64)
    for low, high in _blocks(len(sums)):
        ends[low:high] = sums[low:high].copy()  # in place: a second array would be 8 bytes per weight more
    shift = _BITS - min(_BITS, len(ends).bit_length() - 1)
    return Shares(ends, shift, _table(ends, shift))


def _table(ends: Int64s, shift: int) -> Int32s | Int64s:
    """The look-up table of `Shares`: at most one entry per weight, and one more."""
    last = int(np.searchsorted(ends, ends[-1]))  # all later weights are 0
    cells = (1 << (_BITS - shift)) + 1
    table: Int32s | Int64s = np.empty(cells, np.int32) if last < 1 << 31 else np.empty(cells, np.int64)
    for low, high in _blocks(len(table)):
        edges = np.arange(low, high, dtype=np.int64) << shift
        table[low:high] = np.minimum(np.searchsorted(ends, edges, "right"), last)
    return table


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    for low in range(0, count, _BLOCK):
        yield low, min(low + _BLOCK, count)


def share_at(shares: Shares, numbers: Int64s) -> Int64s:
    """The owner of each number in `[0, 2**52)`: the table gives a range of weights, bisection the weight."""
    cell = numbers >> shares.shift
    low, high = shares.table[cell].astype(np.int64), shares.table[cell + 1].astype(np.int64)
    pending = np.flatnonzero(low < high)
    while len(pending):
        one, two = low[pending], high[pending]
        middle = (one + two) >> 1
        before = shares.ends[middle] <= numbers[pending]
        one, two = np.where(before, middle + 1, one), np.where(before, two, middle)
        low[pending], high[pending] = one, two
        pending = pending[one < two]
    return low


def draws(shares: Shares, seed: int, epoch: int) -> Callable[[Int64s], Int64s]:
    """The draws of an epoch: positions, `(k,)` int64, to indexes of weights."""
    one, two = _keys(seed, epoch)[:2]
    if library.LIBRARY is None:
        return lambda positions: share_at(shares, _upper(hashes(positions, one, two)))
    own = shares.ends, shares.table, shares.shift, (int(one), int(two))
    return lambda positions: kernel.draw(*own, np.ascontiguousarray(positions))


def entity_draws(shares: Shares, first: Int64s, seed: int, epoch: int) -> Callable[[Int64s], Int64s]:
    """The draws of an epoch: positions to windows. Entity e has the windows from `first[e]` to `first[e + 1]`."""
    entity_at = draws(shares, seed, epoch)
    one, two = _keys(seed, epoch)[2:4]

    def at(positions: Int64s) -> Int64s:
        entity = entity_at(positions)
        begin = first[entity]
        windows = (first[entity + 1] - begin).astype(np.uint64)
        return begin + (hashes(positions, one, two) % windows).astype(np.int64)

    return at


def checksum(shares: Shares) -> int:
    """The CRC-32 of the ends of all shares, as little-endian int64: equal for weights that draw the same."""
    crc = 0
    for low, high in _blocks(len(shares.ends)):
        crc = zlib.crc32(shares.ends[low:high].astype("<i8").tobytes(), crc)
    return crc


def _keys(seed: int, epoch: int) -> Uint64s:
    return keys(f"tensorstash weighted 1, seed {seed}, epoch {epoch}")


def _upper(hashed: Uint64s) -> Int64s:
    return (hashed >> np.uint64(64 - _BITS)).astype(np.int64)


def _by_name(given: Mapping[Any, Any], entities: Sequence[Any]) -> list[Any]:
    known = set(entities)
    for name in given:
        if name not in known:
            raise unknown(name, entities, "the stash", "entity")
    for name in entities:
        if name not in given:
            raise ValueError(f"A mapping has a weight for each entity; {name!r} has none. Give it 0 to leave it out.")
    return [given[name] for name in entities]


def _checked(given: Any, count: int, what: str, names: Sequence[Any]) -> NDArray[Any]:
    """Weights as an array of numbers, without a copy if they are one already; the error for a wrong weight names it."""
    weights = as_array(given)
    if weights.ndim != 1 or weights.dtype.kind not in "fiub":
        raise TypeError(f"Weights are a list of numbers; got {weights.ndim} dimensions of {weights.dtype}.")
    if len(weights) != count:
        raise ValueError(f"There is one weight for each {what}, {count:,} here; got {len(weights):,}.")
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high < np.inf):  # NaN fails both comparisons
        wrong = int(np.argmin((weights >= 0) & (weights < np.inf)))
        raise ValueError(
            f"Weights are finite numbers of at least 0; that of {what} {names[wrong]!r} is {weights[wrong]}."
        )
    if not high:
        raise ValueError(f"At least one weight is above 0; all {count:,} are 0.")
    return weights


def as_array(given: Any) -> NDArray[Any]:
    """Weights of any library as an array, not copied where that is possible."""
    if isinstance(given, torch.Tensor):
        tensor = given.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.asarray(given)
