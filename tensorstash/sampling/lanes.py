"""The sequential order in equal pieces, side by side, for models that carry a state from batch to batch."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.checks import MOST_COUNT, at_least
from tensorstash.common.dtypes import Int64s
from tensorstash.gather.span import draws_of
from tensorstash.sampling.order import Ids, SequenceOrder
from tensorstash.sampling.steps import Layout, Steps
from tensorstash.windows.chain import Chain
from tensorstash.windows.slots import run_edges
from tensorstash.windows.windows import Windows


@dataclass(frozen=True, slots=True)
class Lanes:
    """The sequential order in `count` equal pieces, side by side: step s takes element s of each piece.

    Each row of a batch continues the same row of the batch before, which truncated backpropagation through time needs.
    There is one lane for each row of the batches of all ranks, so `count` is `num_replicas * batch_size`. If the pieces
    cannot be equal, the first ones are one window longer.

    Args:
        count: the number of pieces, at least 1: as many as the batches of all ranks have rows.

    Raises:
        ValueError: `count` is below 1. In a `ts.Loader`: its steps have another number of rows, or the windows do not
            continue each other.

    Example:
        >>> import tensorstash as ts
        >>> list(ts.Sampler(8, 3, order=ts.Lanes(3)))
        [[0, 3, 6], [1, 4, 7], [2, 5]]
    """

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", at_least(1, self.count, "count", below=MOST_COUNT))

    def bind(self, windows: Sized) -> "LanesOrder":
        """The order of these windows, each of which must continue the one before."""
        if isinstance(windows, Windows):
            _check_continued(windows)
        return LanesOrder(self.count, len(windows))


class LanesOrder(SequenceOrder):
    """The order of `ts.Lanes`. `reset` is true in a batch where a window does not continue its row."""

    def __init__(self, count: int, windows: int) -> None:
        self.name = f"{count} lanes"
        self.positions = windows
        self._count = count
        self._length, self._longer = divmod(windows, count)  # of a lane; the first `longer` lanes have one window more

    def at(self, seed: int, epoch: int) -> Ids:
        """The ids of an epoch, which are the same in every epoch."""

        def ids_at(positions: Int64s) -> Int64s:
            at, lane = np.divmod(positions, self._count)
            return lane * self._length + np.minimum(lane, self._longer) + at

        return ids_at

    def check_layout(self, layout: Layout) -> None:
        """Refuse a layout whose steps do not have a row for each lane."""
        if self._count != layout.size:
            raise ValueError(
                f"The lanes must be as many as the rows of the batches of all ranks, {layout.ranks} x "
                f"{layout.batch_size}, got {self._count}. Use ts.Lanes({layout.size})."
            )

    def entries(self, steps: Steps, layout: Layout, chain: Chain, anchors: Int64s) -> dict[str, NDArray[Any]]:
        """`reset`: whether each window does not continue the window in the same row of the previous batch."""
        placement = chain.placements[0]
        at, lane = np.divmod(steps.positions, self._count)
        row = np.arange(steps.ids.shape[1])
        before = placement.anchor_slots(np.maximum(steps.ids - 1, 0))
        runs, _ = run_edges(placement.slots)
        start, start_before = (np.searchsorted(runs, slots - placement.history, "right") for slots in (anchors, before))
        goes_on = (anchors - before == placement.intervals.stride) & (start == start_before)
        same_row = lane == layout.rank * layout.batch_size + row
        return {"reset": (at == 0) | ~goes_on | ~same_row | (row >= steps.valid)}


def _check_continued(windows: Windows) -> None:
    """Refuse windows whose past would overlap the past of the previous window, skip rows, or be drawn."""
    placement = windows.placement
    breaks = {
        "windows at given points and spans in time do not": placement.points is not None or placement.time_spans,
        "the last piece of a run of cover is moved back": placement.cover is not None,
        "the start of a ts.Draw is another one in each window": draws_of(windows.spans),
        "max_variates= draws other columns for each window": windows.contents.drawn_packs,
    }
    for why, holds in breaks.items():
        if holds:
            raise ValueError(
                f"ts.Lanes needs windows each of which continues the one before, with the same columns; {why}. Use "
                "another order."
            )
    # spans that end before the anchor are lags, and spans that begin at or after it are the future
    past = max((-span.start for span in windows.spans if span.start < 0 <= span.stop), default=windows.history)
    if past != windows.stride:
        raise ValueError(
            f"stride must equal the length of the past, {past}, with ts.Lanes, got {windows.stride}: each window of a "
            "lane begins where the past of the window before it ended."
        )
