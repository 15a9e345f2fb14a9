"""Columns that are computed over the rows of each entity, when the order of the rows is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tensorstash.columns.column import Column
from tensorstash.common.threads import in_threads
from tensorstash.errors import DataError
from tensorstash.ingest.decoders import Decoder, decoder_of
from tensorstash.ingest.in_order import Block, Blocks, blocks_in_order
from tensorstash.ingest.keys import Keys, Work
from tensorstash.ingest.memory import check_entity
from tensorstash.ingest.stats import Stats
from tensorstash.sources.derive import Derived
from tensorstash.sources.per_entity import Series
from tensorstash.sources.scan import Scan, Unit

# a column, its first row in the stash, `None` because rows are in order, and the values
Put = Callable[[Column, int, None, NDArray[Any]], None]


def compute_per_entity(
    work: Work, series: Series, columns: Sequence[Column], keys: Keys, put: Put
) -> tuple[dict[str, Stats], dict[str, Decoder]]:
    """Compute and decode columns, several blocks of entities at a time."""
    stats = {column.name: Stats(unknown=None if column.vocabulary is None else 0) for column in columns}
    decoders = {column.name: decoder_of(column) for column in columns}
    names = series.inputs(columns)
    _check_largest(work, series, columns, keys)

    def compute(blocks: Blocks, go_on: Callable[[], None]) -> dict[str, Stats]:
        counts = {column.name: Stats() for column in columns}
        for block in blocks():
            entities = _entities_of(block, keys, work.scanned.label)
            own = dict(zip(names, block.columns))
            for column in columns:
                go_on()
                arrays = [own[m] if m in own else entities.computed(series.derived[m], own) for m in column.members]
                found, counted = decoders[column.name].decode(arrays, block.start, entities.place)
                counts[column.name].add(counted)
                put(column, block.start, None, found)
                work.progress.add(len(found) * len(column.members), found.nbytes)
        return counts

    jobs = blocks_in_order(series.scanned, names, keys.arranger, work.planned.temporary)
    for _, counts in in_threads(jobs, compute):
        for name, counted in counts.items():
            stats[name].add(counted)
    return stats, decoders


def _check_largest(work: Work, series: Series, columns: Sequence[Column], keys: Keys) -> None:
    """Refuse what is computed over an entity that is too large for memory."""
    sizes = np.diff(keys.arranger.offsets)
    if not len(sizes):
        return
    largest = int(np.argmax(sizes))
    types = [series.scanned.schema.field(name).type for name in series.inputs(columns)]
    values = [[work.scanned.schema.field(member).type for member in column.members] for column in columns]
    who = "the series" if work.planned.entity is None else f"entity {keys.names[largest]!r}"
    check_entity(int(sizes[largest]), types, values, who, work.planned.source)


@dataclass(frozen=True, slots=True)
class _Entities:
    """The entities `first` to `end - 1`, all of whose rows are at hand."""

    keys: Keys
    label: str  # of the source
    first: int
    end: int

    @property
    def place(self) -> str:
        """Which they are, for errors."""
        if self.keys.entities is None:
            return self.label
        one, last = (self.keys.names[number] for number in (self.first, self.end - 1))
        return f"entity {one!r}" if one == last else f"the entities {one!r} to {last!r}"

    def computed(self, derived: Derived, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The values of all rows, computed from columns of these rows. An error names the entity that fails."""
        offsets = self.keys.arranger.offsets
        start, stop = int(offsets[self.first]), int(offsets[self.end])
        numbers = pa.array(self.keys.arranger.entities(start, stop))
        try:
            return derived.compute([numbers, *(columns[name] for name in derived.inputs)], self.place)
        except DataError:
            if self.end - self.first > 1:
                middle = (self.first + self.end) // 2
                for part in (replace(self, end=middle), replace(self, first=middle)):
                    low, high = int(offsets[part.first]) - start, int(offsets[part.end]) - start
                    part.computed(derived, {name: columns[name].slice(low, high - low) for name in derived.inputs})
            raise


def _entities_of(block: Block, keys: Keys, label: str) -> _Entities:
    first, end = np.searchsorted(keys.arranger.offsets, (block.start, block.stop)).tolist()
    return _Entities(keys, label, first, end)


def in_rows_of_stash(scanned: Scan) -> Scan:
    """A scan for messages, in which the number of a row is that in the stash."""
    place = "counted by entity and time"
    return replace(scanned, units=(Unit(place, 0, scanned.rows, lambda _: (), 0),))
