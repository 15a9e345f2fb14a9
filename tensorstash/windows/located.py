"""Where some windows are: the integers that a gather needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.rows import Stretches
from tensorstash.windows.time_spans import Candidates


class Located(NamedTuple):
    """Windows of a chain, all arrays of one shape."""

    source: Int32s | None  # the number of the placement of each; None if there is one
    ids: Int64s  # in the chain
    anchors: Int64s  # the slots of their anchors
    stretches: tuple[Stretches | Candidates, ...] = ()  # the rows of their spans in time, one for each time span

    def reshaped(self, *shape: int) -> "Located":
        """The same windows as arrays of another shape."""
        return self._with_each(lambda array: array.reshape(shape))

    def of(self, steps: range) -> "Located":
        """The windows of some steps, of `(steps, batch)`, one after the other."""
        return self._with_each(lambda array: array[steps.start : steps.stop].reshape(-1))

    def _with_each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "Located":
        source = None if self.source is None else change(self.source)
        stretches = tuple(part.with_each(change) for part in self.stretches)
        return Located(source, change(self.ids), change(self.anchors), stretches)
