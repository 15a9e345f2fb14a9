"""Stretches: consecutive rows, of which each window has another number, behind empty slots.

Each call numbers the slots anew: window i of the call has the slots `i * length` up to `(i + 1) * length`, and one
fragment, its rows. So stretches are gathered in the same way as other windows with empty slots.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.memory import Fragments
from tensorstash.gather.span import Span
from tensorstash.native.guide import Guide, guide


class Stretches(NamedTuple):
    """The last `rows` rows before the row `stop`, and the origin of distances, of each window; arrays of one shape."""

    stop: Int64s
    rows: Int64s
    origin: Int64s

    def reshaped(self, *shape: int) -> "Stretches":
        """The same stretches as arrays of another shape."""
        return Stretches(*(array.reshape(shape) for array in self))

    def of(self, which: Any) -> "Stretches":
        """Those at an index."""
        return Stretches(*(array[which] for array in self))


def as_fragments(stretches: Stretches, length: int) -> tuple[Fragments, Int64s]:
    """The fragments of all windows of a call, and the slots of their anchors in the shape of the stretches."""
    windows = _windows(stretches.stop.size, length)
    anchors, count = windows.ends, stretches.rows.reshape(-1)
    fragments = Fragments(anchors - count, stretches.stop.reshape(-1) - count, count, windows)
    return fragments, np.ascontiguousarray(anchors).reshape(stretches.stop.shape)


@lru_cache(maxsize=16)
def _windows(count: int, length: int) -> Guide:
    return guide(np.arange(length, (count + 1) * length, length)[:, None])


def to_distances(
    spans: Sequence[Span], batch: Mapping[str, torch.Tensor], observed: Mapping[str, torch.Tensor], origin: Int64s
) -> None:
    """Subtract values, in the unit of the origins, from the origins of their windows, in place; 0 in empty slots. In numpy, for forked processes."""
    for span in spans:
        values = batch[span.name].numpy()
        if span.distance > 1:
            values *= span.distance
        np.subtract(origin[:, None], values, out=values)
        values *= observed[f"{span.name}.observed"].numpy()
