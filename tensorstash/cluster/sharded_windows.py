"""`ShardedWindows`: the windows of all shards, of which this node holds some."""

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tensorstash.cluster.legs import ShardTable
from tensorstash.cluster.order import ShardedOrder
from tensorstash.cluster.shard_statistics import of_all, of_node
from tensorstash.cluster.shards import Shards
from tensorstash.common.dtypes import Int64s
from tensorstash.common.keywords import made_by
from tensorstash.common.warn import warn
from tensorstash.sampling.mix import Mix
from tensorstash.sampling.several import Several
from tensorstash.transforms.fitting import Statistics
from tensorstash.windows.contents import Contents
from tensorstash.windows.entity_numbers import numbers_of
from tensorstash.windows.identity import OF_ROWS
from tensorstash.windows.splits import GivenTime
from tensorstash.windows.windows import Windows, last_parts

Part = TypeVar("Part")
Made = TypeVar("Made")

_UNEVEN = 0.1  # a larger share of filler in an epoch is a warning


class ShardCount(NamedTuple):
    """The windows of one shard: how many, the times of its rows, and checksums of where its windows and rows are."""

    windows: int = 0
    first_time: int | None = None
    last_time: int | None = None
    runs: int = 0
    # a checksum of where the rows of entities begin, with spans in time of their times, and of the entities of tables
    offsets: int = 0


@made_by("ts.cluster.windows(shards, history, horizon)", Mapping)
@dataclass(frozen=True, eq=False)
class ShardedWindows(Several):
    """The windows of all shards; `parts` has those of the shards that this node holds, by the number of the shard.

    A `Loader` samples them: in an epoch every window comes once over all nodes, and all ranks take equally many steps.
    `ts.cluster.windows` makes one. On several nodes, `ts.cluster.exchange_counts` must have told each node how many
    windows the others hold, after the last split.

    Attributes:
        parts: the windows of each shard of this node; a shard without a window may be absent.
        shards: the `Shards` of this node.
        counts: a record for each shard, whose `windows` is its number of windows, once those of all are known; else
            `None`.

    Example:
        >>> import numpy as np, tempfile, tensorstash as ts
        >>> data, where = {"shop": np.repeat([*"ABCD"], 5), "sold": np.arange(20.0)}, tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=3)
        >>> windows
        ShardedWindows: 12 in 2 shards, node 0 of 1 has 12 in 2 shards
        >>> [int(batch["valid"].sum()) for batch in ts.Loader(windows, 8)]  # false for filler
        [6, 6]
    """

    parts: Mapping[int, Windows]
    shards: Shards
    counts: Sequence[ShardCount] | None = None

    def __len__(self) -> int:
        """The number of windows of all shards on all nodes."""
        return sum(self._table.windows)

    def split(self, *cuts: GivenTime) -> "tuple[ShardedWindows, ...]":
        """Divide these windows at times: before, between and from the cuts. A window across a cut is in no part.

        Args:
            cuts: times in ascending order: texts such as "2024-01-31 06:00", dates or datetimes, or integers in the
                unit of the times.

        Raises:
            ValueError: a cut that cannot be read, cuts that do not ascend, or shards without times.

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data = {"shop": np.repeat(["A", "B"], 10), "day": np.tile(np.arange(10), 2), "sold": np.ones(20)}
            >>> where = tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", time="day", shards=2, to=where)
            >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2, horizon=1)
            >>> [len(part) for part in windows.split(6)]
            [8, 8]
        """
        return self._divided(lambda part: part.split(*cuts), len(cuts) + 1)

    def split_fraction(self, *fractions: float) -> "tuple[ShardedWindows, ...]":
        """Divide these windows by time, with cuts after fractions of the rows of each entity.

        Args:
            fractions: of the rows of each entity, ascending, each between 0 and 1.

        Raises:
            ValueError: fractions that do not ascend or lie outside (0, 1).

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data, where = {"shop": np.repeat(["A", "B"], 10), "sold": np.ones(20)}, tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
            >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2, horizon=1)
            >>> [len(part) for part in windows.split_fraction(0.6)]
            [8, 8]
        """
        return self._divided(lambda part: part.split_fraction(*fractions), len(fractions) + 1)

    def split_last(self, *lengths: int, of: str | None = None) -> "tuple[ShardedWindows, ...]":
        """Divide these windows with cuts before the last slots of each entity, wherever its series ends.

        Args:
            lengths: of the last parts in slots, in their order, at least one.
            of: a column; an entity ends with its last row in which this has a value. `None`: with its last row.

        Raises:
            ValueError: a length below 1. ColumnError: no such column.

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data, where = {"shop": np.repeat(["A", "B"], 10), "sold": np.ones(20)}, tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
            >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2, horizon=1)
            >>> [len(part) for part in windows.split_last(4)]
            [8, 8]
        """
        return self._divided(partial(last_parts, lengths=lengths, of=of), len(lengths) + 1)

    def of(self, names: Sequence[Any]) -> "ShardedWindows":
        """The windows of some entities, which may be of any shard.

        Args:
            names: entities as `shards.entities` has them: names, or tuples if there are several entity columns.

        Raises:
            ColumnError: an entity that no shard has. TypeError: a single name. ValueError: no name.

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data, where = {"shop": np.repeat(["A", "B"], 10), "sold": np.ones(20)}, tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
            >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2, horizon=1)
            >>> len(windows.of(["B"]))
            8
        """
        entities, offsets = self.shards.entities, self.shards.entity_offsets
        numbers = np.array(numbers_of(entities, names))
        held = {shard: numbers[(offsets[shard] <= numbers) & (numbers < offsets[shard + 1])] for shard in self.parts}
        chosen = {shard: (part, held[shard]) for shard, part in self.parts.items() if len(held[shard])}
        parts = made_of_shards(chosen, lambda one: one[0].of([entities[k] for k in one[1]]))
        return replace(self, parts=parts, counts=None)

    def _divided(self, divide: Callable[[Windows], Sequence[Windows]], count: int) -> "tuple[ShardedWindows, ...]":
        divided = made_of_shards(self.parts, divide)
        parted = tuple(
            replace(self, parts={shard: parts[k] for shard, parts in divided.items()}, counts=None)
            for k in range(count)
        )
        self._warn_of_empty(parted)
        return parted

    def _warn_of_empty(self, parted: "Sequence[ShardedWindows]") -> None:
        """Warn of parts that have no window in any shard of this node."""
        held = [part.stash for part in self.parts.values() if len(part)]
        times = [time for stash in held for time in stash.time_range if time is not None]
        for k, windows in enumerate(parted):
            if held and not any(map(len, windows.parts.values())):
                form, several = held[0].clock.format, self.shards.nodes > 1
                whose = f", whose times go from {form(min(times))} to {form(max(times))}" if times else ""
                warn(
                    f"Part {k + 1} of {len(parted)} has no window in the shards of this node{whose}. Choose other cuts"
                    f"{', or fewer nodes' * several}."
                )

    @cached_property
    def _table(self) -> ShardTable:
        """The number of windows in each shard; several nodes must have exchanged it."""
        return ShardTable([count.windows for count in self._counts], self.shards.holds)

    @cached_property
    def _counts(self) -> Sequence[ShardCount]:
        if self.counts is not None:
            return self.counts
        if self.shards.nodes > 1:
            raise ValueError(
                f"Each of {self.shards.nodes} nodes must know how many windows the others hold. Call windows = "
                "ts.cluster.exchange_counts(windows) on every rank, after the last split and before the loader."
            )
        return [count for _, count in sorted(counts_of_node(self).items())]

    def fingerprint(self) -> dict[str, Any]:
        """A small identity in plain values, the same on every node and for any number of nodes.

        States are compared by it. It is known once the windows of all shards are.

        Example:
            >>> import numpy as np, tempfile, tensorstash as ts
            >>> data, where = {"shop": np.repeat(["A", "B"], 10), "sold": np.ones(20)}, tempfile.mkdtemp()
            >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=2, to=where)
            >>> shards = ts.cluster.open(where)
            >>> windows, others = (ts.cluster.windows(shards, history=n) for n in (2, 3))
            >>> windows.fingerprint() == others.fingerprint()
            False
        """
        counts = self._counts
        return {
            "windows": len(self),
            "shards": len(counts),
            "entities": int(self.shards.entity_offsets[-1]),
            "rows": self.shards.manifest.rows,
            "first_time": min((one.first_time for one in counts if one.first_time is not None), default=None),
            "last_time": max((one.last_time for one in counts if one.last_time is not None), default=None),
            **(shared_fingerprint(self) or {}),
            "runs": zlib.crc32(repr([count[:4] for count in counts]).encode()),
            "offsets": zlib.crc32(repr([count.offsets for count in counts]).encode()),
        }

    @property
    def contents(self) -> Contents:  # type: ignore[override]  # an attribute there
        """What gathers the windows of this node."""
        return self._mix_of_node.contents

    def order(self, *, shuffle: bool) -> ShardedOrder:
        """The order of a sampler over these windows: each shard permuted in each epoch, or sequential."""
        shards, components = self.shards, self._mix_of_node.components
        return ShardedOrder(self._table, shards.node, shards.nodes, [*self.parts], components, shuffle=shuffle)

    @property
    def numbers(self) -> tuple[Int64s, Int64s]:  # type: ignore[override]  # an attribute there
        """The number of each shard of this node, and where its entities begin among those of all shards."""
        shards = np.array([*self.parts], np.int64)
        return shards, self.shards.entity_offsets[shards]

    @property
    def entities(self) -> Sequence[Any]:  # type: ignore[override]
        """The names of the entities of all shards, whose numbers count through all of them."""
        return self.shards.entities

    def statistics(self, columns: list[str], kind: str, by: str | None, *, pooled: bool, together: bool) -> Statistics:
        """The statistics of the rows that these windows see, for one node that has all of them."""
        if self.shards.nodes > 1:
            raise ValueError(
                f"{self.shards.nodes} nodes must exchange their statistics: call "
                "ts.cluster.fit_scaler(windows, columns) on every rank."
            )
        node = of_node(self.parts, columns, kind, by, together=together)
        return of_all(self.shards.entity_offsets, [node], kind, by, pooled=pooled)

    @cached_property
    def _mix_of_node(self) -> Mix:
        """The windows of this node as one mix, whose components are `shard 0`, `shard 1` and so on.

        Raises `ValueError` on every node if any of them holds no window.
        """
        if 0 in self._totals:
            raise ValueError(
                f"Each node must hold at least one window; node {self._totals.index(0)} of {self.shards.nodes} holds "
                "none. Use fewer nodes, or more shards."
            )
        return Mix({f"shard {shard}": part for shard, part in self.parts.items()})

    @property
    def _totals(self) -> list[int]:
        """The number of windows on each node."""
        return [sum(self._table.windows[shard] for shard in held) for held in self.shards.holds(self.shards.nodes)]

    def _unevenness(self) -> float:
        """The share of filler in an epoch, because some nodes hold fewer windows than others."""
        totals = self._totals
        return 1 - sum(totals) / (len(totals) * max(totals)) if any(totals) else 0.0

    @property
    def warning(self) -> str | None:  # type: ignore[override]
        """A warning if more than a tenth of an epoch is filler."""
        uneven = self._unevenness()
        if uneven <= _UNEVEN:
            return None
        return (
            f"The windows of {len(self._table.windows):,} shards are uneven on {self.shards.nodes} nodes: all take as "
            f"many steps as the one with the most, so {uneven:.0%} of what they show is filler. Use more shards or "
            "fewer nodes."
        )

    def __repr__(self) -> str:
        nodes, held = self.shards.nodes, sum(len(part) for part in self.parts.values())
        text = f"node {self.shards.node} of {nodes} has {held:,} in {len(self.parts):,} shards"
        if self.counts is None and nodes > 1:
            return f"ShardedWindows: {text}, and has not exchanged counts with the others"
        filler = f"; {self._unevenness():.1%} filler, because nodes differ" if nodes > 1 else ""
        return f"ShardedWindows: {len(self):,} in {len(self._counts):,} shards, {text}{filler}"


def counts_of_node(windows: ShardedWindows) -> dict[int, ShardCount]:
    """The count of each shard that this node holds."""
    shards = windows.shards
    return {shard: _counted(windows.parts.get(shard)) for shard in shards.holds(shards.nodes)[shards.node]}


def shared_fingerprint(windows: ShardedWindows) -> dict[str, Any] | None:
    """The part of the fingerprint that all shards share; `None` if this node has no shard."""
    fingerprint = next((part.fingerprint() for part in windows.parts.values()), {})
    return {name: value for name, value in fingerprint.items() if name not in OF_ROWS} or None


def _counted(windows: Windows | None) -> ShardCount:
    if windows is None:
        return ShardCount()
    fingerprint = windows.fingerprint()
    runs = zlib.crc32(repr((fingerprint["names"], fingerprint["runs"])).encode())
    of_tables = (number for name, number in fingerprint.items() if name == "entities_in_tables")
    offsets = zlib.crc32(repr((fingerprint["offsets"], fingerprint.get("row_times"), *of_tables)).encode())
    return ShardCount(fingerprint["windows"], fingerprint["first_time"], fingerprint["last_time"], runs, offsets)


def made_of_shards(parts: Mapping[int, Part], make: Callable[[Part], Made]) -> dict[int, Made]:
    """What `make` returns for each shard, with one warning for all: that of the first, and how many others have one."""
    made, texts = dict[int, Made](), dict[int, str]()
    for shard, part in parts.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for text in ("Part .* has no window", "None of .* chosen entity"):  # other shards may have some
                warnings.filterwarnings("ignore", text, UserWarning)
            made[shard] = make(part)
        if caught:
            texts[shard] = " ".join(str(warning.message) for warning in caught)
    if texts:
        shard, text = next(iter(texts.items()))
        more = f" {len(texts) - 1} more shards of this node have such a warning." if len(texts) > 1 else ""
        warn(f"Shard {shard}: {text}{more}")
    return made
