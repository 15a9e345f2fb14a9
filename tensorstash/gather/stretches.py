"""Stretches of rows of any length: each at the end of a span, with empty slots in front.

A call numbers slots of its own: window i of the call has the slots `i * most` up to `(i + 1) * most`, and one fragment,
its rows. So stretches are gathered as any windows with empty slots are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import Fragments, Span, Store
from tensorstash.native.guide import Guide, guide
from tensorstash.segments.segment import Block

TIMES = "__time"  # the times of the rows, as a column of a store


class Stretches(NamedTuple):
    """The last `rows` rows before the row `stop`, and the moment of each window; all arrays of one shape."""

    stop: Int64s
    rows: Int64s
    moments: Int64s

    def reshaped(self, *shape: int) -> "Stretches":
        """The same as arrays of another shape."""
        return Stretches(*(array.reshape(shape) for array in self))

    def of(self, which: Any) -> "Stretches":
        """Those that an index picks."""
        return Stretches(*(array[which] for array in self))


def with_times(store: Store, times: torch.Tensor) -> Store:
    """The store with the times of its rows as a column."""
    block = Block(times, (TIMES,), len(times))
    return replace(store, columns={**store.columns, TIMES: times}, make_blocks=lambda: [*store.blocks, block])


def as_fragments(stretches: Stretches, most: int) -> tuple[Fragments, Int64s]:
    """The fragments of all windows of a call, and the slots of their anchors in the shape of the stretches."""
    windows = _windows(stretches.stop.size, most)
    anchors, count = windows.ends, stretches.rows.reshape(-1)
    fragments = Fragments(anchors - count, stretches.stop.reshape(-1) - count, count, windows)
    return fragments, np.ascontiguousarray(anchors).reshape(stretches.stop.shape)


@lru_cache(maxsize=16)
def _windows(count: int, most: int) -> Guide:
    return guide(np.arange(most, (count + 1) * most, most)[:, None])


def to_ages(
    spans: Sequence[Span], batch: Mapping[str, torch.Tensor], observed: Mapping[str, torch.Tensor], moments: Int64s
) -> None:
    """Turn the times of rows into their ages, in place; 0 where a slot is empty. In numpy, for forked processes."""
    for span in spans:
        ages = batch[span.name].numpy()
        np.subtract(moments[:, None], ages, out=ages)
        ages *= observed[f"{span.name}.observed"].numpy()
