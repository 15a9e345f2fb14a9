"""Draws with replacement by weights, as functions of (seed, epoch, position); at most 16 bytes per weight."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import at_least
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.errors import unknown
from tensorstash.native import kernel, library
from tensorstash.native.guide import first_rows_in_numpy
from tensorstash.sampling.order import Uint64s, chunks, hashes, keys

Floats = NDArray[np.float64]

_BITS = 52  # of a draw: a float64 in [0, 1) represents every multiple of 2**-52 exactly


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
        epoch_size: draws per epoch; by default the number of windows.

    Raises:
        ValueError: a weight is negative, infinite or NaN (the message names the window or entity), all weights are 0,
            or their number is wrong. ColumnError: a column or entity does not exist.

    Example:
        >>> import tensorstash as ts
        >>> windows = ts.Windows(ts.load({"y": [0.0, 1.0, 2.0, 3.0], "rare": [0, 1, 0, 3]}), history=1, columns=["y"])
        >>> loader = ts.Loader(windows, 8, order=ts.Weighted("rare", epoch_size=8))
        >>> [batch["y"][:, 0].tolist() for batch in loader]
        [[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 3.0]]
    """

    weights: Any
    per: Literal["window", "entity"] = "window"
    epoch_size: int | None = None

    def __post_init__(self) -> None:
        if self.per not in ("window", "entity"):
            raise ValueError(f'per must be "window" or "entity", got {self.per!r}.')
        if not hasattr(self.weights, "__len__"):
            raise TypeError(f"weights must be a list of numbers or the name of a column, got {self.weights!r}.")
        if self.per == "window" and isinstance(self.weights, Mapping):
            raise TypeError('weights must be a list with per="window", got a mapping. Use per="entity".')
        if self.epoch_size is not None:
            at_least(1, self.epoch_size, "epoch_size")

    def __repr__(self) -> str:
        weights = repr(self.weights) if isinstance(self.weights, str) else f"{len(self.weights):,} weights"
        return f"Weighted({weights}, per={self.per!r}, epoch_size={self.epoch_size})"


@dataclass(frozen=True, slots=True, eq=False)
class DrawTable:
    """The owners of the numbers below 2**52: weight i owns `[ends[i - 1], ends[i])`."""

    ends: Int64s  # (n,) ascending; the last is 2**52
    shift: int
    cells: Int32s | Int64s  # (count + 1,) cells[c] is the owner of the number c << shift


def entity_table(weights: Any, entities: Sequence[Any], first: Int64s) -> DrawTable:
    """The table of entities by their weights; entity e has the windows `[first[e], first[e + 1])`."""
    if isinstance(weights, Mapping):
        weights = by_name(weights, entities, "the stash", "entity")
    weights = checked_weights(weights, len(entities), "entity", entities)
    has_windows = np.diff(first) > 0
    if not weights[has_windows].any():
        raise ValueError(
            f"At least one entity with windows must have a weight > 0; all {int(has_windows.sum()):,} have 0. "
            "Give one of them a weight."
        )
    return draw_table(np.where(has_windows, weights, 0))


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
    cells: Int32s | Int64s = np.empty(count, np.int32) if last < 1 << 31 else np.empty(count, np.int64)
    for low, high in chunks(count):
        edges = np.arange(low, high, dtype=np.int64) << shift
        cells[low:high] = np.minimum(np.searchsorted(ends, edges, "right"), last)
    return cells


def owners(table: DrawTable, numbers: Int64s) -> Int64s:
    """The owner of each number in `[0, 2**52)`: a cell gives a range of weights, bisection the weight."""
    cell = numbers >> table.shift
    low, high = table.cells[cell].astype(np.int64), table.cells[cell + 1].astype(np.int64)
    several = np.flatnonzero(low < high)
    low[several] = first_rows_in_numpy(table.ends, low[several], high[several], numbers[several] + 1)
    return low


def window_draws(table: DrawTable, seed: int, epoch: int) -> Callable[[Int64s], Int64s]:
    """The draws of an epoch: positions, `(k,)` int64, to indexes of weights."""
    first, second = _keys(seed, epoch)[:2]
    if library.LIBRARY is None:
        upper = np.uint64(64 - _BITS)
        return lambda positions: owners(table, (hashes(positions, first, second) >> upper).astype(np.int64))
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
    if weights.ndim != 1 or weights.dtype.kind not in "fiub":
        raise TypeError(
            f"weights must be numbers, one for each {what}, got {weights.ndim} dimensions of {weights.dtype}."
        )
    if len(weights) != count:
        raise ValueError(f"weights must have one number for each {what}, {count:,} in all, got {len(weights):,}.")
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high < np.inf):  # NaN fails both comparisons
        wrong = int(np.argmin((weights >= 0) & (weights < np.inf)))
        raise ValueError(f"Weights must be finite and >= 0, got {weights[wrong]} for {what} {names[wrong]!r}.")
    if not high:
        raise ValueError(f"At least one weight must be > 0; all {count:,} are 0.")
    return weights


def as_array(values: Any) -> NDArray[Any]:
    """Weights of any library as an array, not copied where that is possible."""
    if isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise TypeError("Weights must be one list of numbers, got lists of different lengths.") from error
