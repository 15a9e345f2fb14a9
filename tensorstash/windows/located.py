"""Where some windows are, and what else of their batches is known before a gather."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.rows import Stretches
from tensorstash.native.permutation import Uint64s
from tensorstash.windows.time_spans import Candidates


class Located(NamedTuple):
    """Windows of a chain, all arrays `(windows, ...)`."""

    source: Int32s | None  # the number of the placement of each; None if there is one
    ids: Int64s  # in the chain
    anchors: Int64s  # the slots of their anchors
    stretches: tuple[Stretches | Candidates, ...] = ()  # the rows of their spans in time, one for each time span
    skips: Int64s | None = None  # (windows, draws) the slots that each `ts.Draw` leaves out, if there are any
    keys: Mapping[str, Uint64s] = MappingProxyType({})  # hashes by which columns of packs are drawn, by pack
    static_rows: Int64s | None = None  # the rows of the static columns, if there are any
    entries: Mapping[str, NDArray[Any]] = MappingProxyType({})  # other entries of their batches, such as ids

    @property
    def is_bare(self) -> bool:
        """Whether their batches hold nothing beside spans."""
        return self.static_rows is None and not self.entries
