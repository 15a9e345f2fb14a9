"""Draws with replacement by weights, as functions of (seed, epoch, position); at most 16 bytes per weight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import array_of, shown
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import unknown
from tensorstash.native import kernel, library
from tensorstash.native.permutation import Uint64s
from tensorstash.sampling.hashes import chunks, hashes, in_chunks, keys

_BITS = 52  # of a draw: a float64 in [0, 1) represents every multiple of 2**-52 exactly


@dataclass(frozen=True, slots=True, eq=False)
class DrawTable:
    """The owners of the numbers below 2**52: weight i owns `[ends[i - 1], ends[i])`."""

    ends: Int64s  # (n,) ascending; the last is 2**52
    shift: int
    cells: Int32s | Int64s  # (count + 1,) cells[c] is the owner of the number c << shift


def draw_table(weights: NDArray[Any]) -> DrawTable:
    """The table of checked weights, `(n,)`: finite, at least 0, not all 0. `ValueError` if their sum overflows."""
    with np.errstate(over="ignore", under="ignore"):
        sums = np.cumsum(weights, dtype=np.float64)
        if not np.isfinite(sums[-1]):
            raise ValueError(
                f"The sum of all weights must fit into float64; got {len(sums):,} weights up to {weights.max()}. "
                "Divide them by the largest."
            )
        sums /= sums[-1]  # before the scaling by 2**52, which is exact, so that nothing overflows
    sums *= float(1 << _BITS)
    np.rint(sums, out=sums)
    ends = sums.view(np.int64)
    for low, high in chunks(len(sums)):
        ends[low:high] = sums[low:high].copy()  # in place: a second array would be 8 bytes per weight more
    shift = _BITS - min(_BITS, len(ends).bit_length() - 1)
    return DrawTable(ends, shift, _cells(ends, shift))


def _cells(ends: Int64s, shift: int) -> Int32s | Int64s:
    """The cells of a `DrawTable`: at most one per weight, and one more."""
    last = int(np.searchsorted(ends, ends[-1]))  # all later weights are 0
    count = (1 << (_BITS - shift)) + 1
    kind = np.int32 if last < 1 << 31 else np.int64
    return in_chunks(lambda cells: np.minimum(np.searchsorted(ends, cells << shift, "right"), last), count, kind)


def owners(table: DrawTable, numbers: Uint64s) -> Int64s:
    """The owner of each number below 2**52."""
    return np.searchsorted(table.ends, numbers.view(np.int64), "right")


def window_draws(table: DrawTable, seed: int, epoch: int) -> Callable[[Int64s], Int64s]:
    """The draws of an epoch: positions, `(k,)` int64, to indexes of weights."""
    first, second = _keys(seed, epoch)[:2]
    if library.LIBRARY is None:
        upper = np.uint64(64 - _BITS)
        return lambda positions: owners(table, hashes(positions, first, second) >> upper)
    arguments = table.ends, table.cells, table.shift, (int(first), int(second))
    return lambda positions: kernel.draw(*arguments, np.ascontiguousarray(positions))


def entity_draws(
    table: DrawTable, first: Int64s, ids: Int64s | None, seed: int, epoch: int
) -> Callable[[Int64s], Int64s]:
    """The draws of an epoch: positions to windows. Entity e has the windows `[first[e], first[e + 1])` of `ids`."""
    entity_at = window_draws(table, seed, epoch)
    third, fourth = _keys(seed, epoch)[2:4]

    def at(positions: Int64s) -> Int64s:
        entity = entity_at(positions)
        begin = first[entity]
        windows = (first[entity + 1] - begin).astype(np.uint64)
        drawn = begin + (hashes(positions, third, fourth) % windows).astype(np.int64)
        return drawn if ids is None else ids[drawn]

    return at


def _keys(seed: int, epoch: int) -> Uint64s:
    return keys(f"tensorstash weighted 1, seed {seed}, epoch {epoch}")


def by_name(weights: Mapping[Any, Any], names: Sequence[Any], source: str, what: str) -> list[Any]:
    """The weights in the order of the names, each of which must have one."""
    known = set(names)
    for name in weights:
        if name not in known:
            raise unknown(name, names, source, what)
    for name in names:
        if name not in weights:
            raise ValueError(f"weights must name each {what}; {name!r} has none. Give it 0 to leave it out.")
    return [weights[name] for name in names]


def checked_weights(values: Any, count: int, what: str, names: Sequence[Any]) -> NDArray[Any]:
    """Weights as an array of numbers; the error for a wrong weight names it."""
    weights = as_array(values)
    if weights.ndim == 1 and weights.dtype.kind in "USO" and len(weights) == len(names):
        for name, value in zip(names, values):
            if not isinstance(value, Real):
                raise TypeError(f"weights must be numbers, got {shown(value)} for {what} {name!r}.")
    if weights.ndim != 1 or weights.dtype.kind not in "fiub":
        raise TypeError(
            f"weights must be numbers, one for each {what}, got {weights.ndim} dimensions of {weights.dtype}."
        )
    if len(weights) != count:
        raise ValueError(f"weights must have one number for each {what}, {count:,} in all, got {len(weights):,}.")
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high < np.inf):  # NaN fails both comparisons
        wrong = int(np.argmin((weights >= 0) & (weights < np.inf)))
        raise ValueError(
            f"Weights must be finite and >= 0, got {weights[wrong]} for {what} {names[wrong]!r}. "
            "Give it 0 to leave it out."
        )
    if not high:
        raise ValueError(f"At least one weight must be > 0; all {count:,} are 0.")
    return weights


def as_array(values: Any) -> NDArray[Any]:
    """Weights of any library as an array, without a copy where that is possible."""
    is_bfloat16 = isinstance(values, torch.Tensor) and values.dtype == torch.bfloat16  # numpy has no such type
    return array_of(values.float() if is_bfloat16 else values, "weights")
