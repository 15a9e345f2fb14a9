"""The rows of a source, each with its shard and its number, grouped by shard on one machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.sharding import shard_of
from tensorstash.columns.types import is_text, value_type
from tensorstash.common.threads import in_threads
from tensorstash.errors import SourceError
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.entities import entities_of_rows
from tensorstash.sources.read import Unit, read
from tensorstash.sources.streams import plain

SHARD = "__tensorstash.shard"
ROW = "__tensorstash.row"  # the number of a row in the source: it names the row in errors, and orders equal times


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of a source, in its types; only dictionaries are decoded, because they differ from batch to batch."""

    choice: Choice
    shards: int
    shard_by_entity: dict[Any, int] = field(default_factory=dict)  # each entity is hashed once

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a load reads."""
        keys = [column for column in (self.choice.entity, self.choice.time) if column]
        columns = (*self.choice.columns, *self.choice.static, *keys)
        return tuple(dict.fromkeys(member for column in columns for member in column.members))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the tables: the columns of the source, as `plain` has them, the shard and the row."""
        fields = [self.choice.source.schema.field(name) for name in self.names]
        fields = [one.with_type(pa.large_string() if is_text(one.type) else value_type(one.type)) for one in fields]
        return pa.schema([*fields, pa.field(SHARD, pa.int16()), pa.field(ROW, pa.int64())])

    def read(self, unit: Unit, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of a unit that are in these shards, batch by batch; in a batch sorted by shard, then by row."""
        loaded = unit.loaded()
        entity = self.choice.entity
        assert entity is not None
        names, schema, chosen = self.names, self.schema, np.isin(np.arange(self.shards), numbers)
        for row, batch in read(unit, names):
            keys = [batch.column(names.index(name)) for name in entity.members]
            entities, places = entities_of_rows(self.choice.source, entity, keys, row)
            shards = self._shards_of(entities)[places]
            order = np.argsort(shards, kind="stable")
            order = order[chosen[shards[order]]]
            start = row - unit.start
            rows = unit.first + loaded[start : start + batch.num_rows]
            columns = [*plain(batch).take(pa.array(order)).columns, pa.array(shards[order]), pa.array(rows[order])]
            yield pa.table(columns, schema=schema)

    def _shards_of(self, entities: Sequence[Any]) -> Any:
        new = [entity for entity in entities if entity not in self.shard_by_entity]
        self.shard_by_entity.update(zip(new, shard_of(new, self.shards).tolist()))
        return np.fromiter(map(self.shard_by_entity.__getitem__, entities), np.int16, len(entities))

    def by_shard(
        self, numbers: Sequence[int], folder: str, advance: Callable[[int], object]
    ) -> Callable[[int], pa.Table]:
        """Write the rows to a temporary file; returns a function that reads the rows of a shard, in source order.

        `advance` is called with the number of rows that were written, by one thread at a time.
        """
        path, schema, lock = Path(folder, "rows.arrow"), self.schema, Lock()

        def keep(unit: Unit, go_on: Callable[[], None]) -> None:
            for table in self.read(unit, numbers):
                go_on()
                with lock:
                    file.write(table)
                    advance(table.num_rows)

        try:
            with pa.ipc.new_file(path, schema) as file:
                for _ in in_threads(self.choice.source.units, keep):
                    pass
        except OSError as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(
                f"The rows of {self.choice.source.label} are kept in a temporary file, which cannot be written: "
                f"{error}. Make room in {folder}."
            ) from error
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [file.get_batch(k) for k in range(file.num_record_batches)]
        edges = np.arange(self.shards + 1, dtype=np.int16)  # the type of the column, which would be cast otherwise
        bounds = [np.searchsorted(batch.column(SHARD).to_numpy(), edges) for batch in batches]

        def rows_of(number: int) -> pa.Table:
            slices = [batch.slice(at[number], at[number + 1] - at[number]) for batch, at in zip(batches, bounds)]
            slices = [part for part in slices if part.num_rows]
            return pa.Table.from_batches(sorted(slices, key=lambda part: part.column(ROW)[0].as_py()), schema)

        return rows_of
