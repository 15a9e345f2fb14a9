"""Where some windows are: the integers that a gather needs."""

from typing import NamedTuple

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.rows import Stretches
from tensorstash.windows.time_spans import Candidates


class Located(NamedTuple):
    """Windows of a chain, all arrays `(windows,)`."""

    source: Int32s | None  # the number of the placement of each; None if there is one
    ids: Int64s  # in the chain
    anchors: Int64s  # the slots of their anchors
    stretches: tuple[Stretches | Candidates, ...] = ()  # the rows of their spans in time, one for each time span

    def of(self, among: slice) -> "Located":
        """Some of the windows."""
        source = None if self.source is None else self.source[among]
        stretches = tuple([rows.of(among) for rows in self.stretches])
        return Located(source, self.ids[among], self.anchors[among], stretches)
