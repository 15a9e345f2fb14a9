"""Where some windows are, and what else of their batches is known before a gather."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.gather.rows import Stretches
from tensorstash.native.permutation import Uint64s
from tensorstash.windows.time_spans import Candidates


class Located(NamedTuple):
    """Windows of a chain, all arrays `(windows,)`."""

    source: Int32s | None  # the number of the placement of each; None if there is one
    ids: Int64s  # in the chain
    anchors: Int64s  # the slots of their anchors
    stretches: tuple[Stretches | Candidates, ...] = ()  # the rows of their spans in time, one for each time span
    skips: Int64s | None = None  # (draws, windows) the slots that each `ts.Draw` leaves out, if there are any
    keys: Mapping[str, Uint64s] = MappingProxyType({})  # hashes by which columns of packs are drawn, by pack
    static_rows: Int64s | None = None  # the rows of the static columns, if there are any
    entries: Mapping[str, NDArray[Any]] = MappingProxyType({})  # other entries of their batches, such as ids

    @property
    def is_bare(self) -> bool:
        """Whether their batches hold nothing beside spans."""
        return self.static_rows is None and not self.entries

    def of(self, among: slice) -> "Located":
        """Some of the windows."""
        return Located(
            None if self.source is None else self.source[among],
            self.ids[among],
            self.anchors[among],
            tuple([rows.of(among) for rows in self.stretches]),
            None if self.skips is None else np.ascontiguousarray(self.skips[:, among]),
            {pack: keys[among] for pack, keys in self.keys.items()},
            None if self.static_rows is None else self.static_rows[among],
            {name: values[among] for name, values in self.entries.items()},
        )
