"""Draws of windows with replacement, by weights of windows or of entities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.common.checks import MOST_COUNT, at_least, one_of
from tensorstash.common.dtypes import Int64s
from tensorstash.common.keywords import suggests_keywords
from tensorstash.errors import SchemaError, unknown
from tensorstash.sampling.draw_table import (
    DrawTable,
    as_array,
    by_name,
    checked_weights,
    draw_table,
    entity_draws,
    window_draws,
)
from tensorstash.sampling.hashes import checksum, in_chunks
from tensorstash.sampling.order import Count, Ids, SequenceOrder, ids_by_entity
from tensorstash.stash.stash import Stash
from tensorstash.windows.windows import Windows


@suggests_keywords
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
            weight of a window is the column's value in the row of the anchor, or in the last row before an anchor
            without one (without a horizon, in the last row of the window). With `per="entity"` it is the name of a
            static column.
        per: whether a weight is that of a window, `"window"`, or of an entity, `"entity"`.
        epoch_size: draws per epoch; by default the number of windows.

    Raises:
        ValueError: a weight is negative, infinite or NaN (the message names the window or entity), all weights are 0,
            or their number is wrong. ColumnError: a column or entity does not exist.

    Example:
        >>> import tensorstash as ts
        >>> stash = ts.load({"y": [0.0, 1.0, 2.0, 3.0], "rare": [0, 1, 0, 3]})
        >>> windows = ts.Windows(stash, history=1, columns=["y"])
        >>> loader = ts.Loader(windows, 8, order=ts.Weighted("rare", epoch_size=8))
        >>> [batch["y"][:, 0].tolist() for batch in loader]
        [[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 3.0]]
    """

    weights: Any
    per: Literal["window", "entity"] = "window"
    epoch_size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", one_of(self.per, ("window", "entity"), "per"))
        if not hasattr(self.weights, "__len__"):
            raise TypeError(f"weights must be a list of numbers or the name of a column, got {self.weights!r}.")
        if self.per == "window" and isinstance(self.weights, Mapping):
            raise TypeError('weights must be a list with per="window", got a mapping. Use per="entity".')
        if self.epoch_size is not None:
            size = at_least(1, self.epoch_size, "epoch_size", below=MOST_COUNT)
            object.__setattr__(self, "epoch_size", size)

    def __repr__(self) -> str:
        weights = repr(self.weights) if isinstance(self.weights, str) else f"{len(self.weights):,} weights"
        return f"Weighted({weights}, per={self.per!r}, epoch_size={self.epoch_size})"

    def bind(self, windows: Windows | Count) -> "WeightedOrder":
        """The order of these windows."""
        weights = self.weights
        if self.per == "window" and not isinstance(weights, str):
            return self._of_windows(weights, len(windows))
        if isinstance(windows, Count):
            raise windows.lacking(self)
        if self.per == "window":
            return self._of_windows(_at_anchors(windows, weights), len(windows))
        if isinstance(weights, str):
            weights = _number(windows.stash, weights, windows.stash.static)
        first = np.append(0, np.cumsum(windows.per_entity()["count"].numpy()))
        table = entity_table(weights, windows.stash.entities, first)
        return WeightedOrder(self, table, partial(entity_draws, table, first, ids_by_entity(windows)), len(windows))

    def _of_windows(self, weights: Any, count: int) -> "WeightedOrder":
        table = draw_table(checked_weights(weights, count, "window", range(count)))
        return WeightedOrder(self, table, partial(window_draws, table), count)


class WeightedOrder(SequenceOrder):
    """The order of `ts.Weighted`; it keeps a table in place of the weights."""

    def __init__(self, of: Weighted, table: DrawTable, draws: Callable[[int, int], Ids], windows: int) -> None:
        self.name = f"weighted by {of.per}"
        self.positions = windows if of.epoch_size is None else of.epoch_size
        self.fingerprint = {"draws": self.positions, "weights": checksum(table.ends)}
        self._of = replace(of, weights=())  # so that the memory of the weights is released
        self._draws = draws

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch."""
        return self._draws(seed, epoch)

    def with_weights(self, weights: Any, windows: Windows) -> "WeightedOrder":
        """This order with other weights."""
        return replace(self._of, weights=weights).bind(windows)


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


def _at_anchors(windows: Windows, name: str) -> NDArray[Any]:
    """The value of a column in the anchor row of each window, the same row that `where=` uses."""
    points = windows.placement.points
    if points is not None:
        if name not in points.labels:
            raise unknown(name, points.labels, "the frame of at=")
        return points.labels[name][points.row]
    column, of = _number(windows.stash, name, windows.stash), windows.placement
    return in_chunks(lambda ids: column[of.label_rows(of.anchor_slots(ids))], len(windows), column.dtype)


def _number(stash: Stash, name: str, columns: Mapping[str, torch.Tensor]) -> NDArray[Any]:
    if name not in columns:
        raise unknown(name, columns, "the stash", "static column" if columns is not stash else "column")
    kind = "a pack" if columns[name].ndim > 1 else stash.about(name).kind
    if kind != "number":
        raise SchemaError(f"Weights must be a column of numbers; {name!r} is {kind}.")
    return as_array(columns[name])
