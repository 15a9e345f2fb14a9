"""The rows of a source, each with its shard and its number, brought together by shard on one machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import shard_of
from tensorstash.errors import SourceError
from tensorstash.ingest.entities import entities_of_rows
from tensorstash.ingest.plan import Plan
from tensorstash.sources.scan import Scan, Unit, read
from tensorstash.sources.streams import plain, plain_type

SHARD = "__tensorstash.shard"
ROW = "__tensorstash.row"  # the number of a row in the source: it names the row in errors, and orders equal times


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source, in the types of the source but for dictionaries, which differ from batch to batch."""

    scan: Scan
    plan: Plan
    shards: int
    shard_by_entity: dict[Any, int] = field(default_factory=dict)  # each entity is hashed once

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a load reads."""
        keys = [column for column in (self.plan.entity, self.plan.time) if column]
        columns = (*self.plan.columns, *self.plan.static, *keys)
        return tuple(dict.fromkeys(member for column in columns for member in column.members))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the tables: those of the source, the shard and the row."""
        fields = [self.scan.schema.field(name) for name in self.names]
        fields = [field.with_type(plain_type(field.type)) for field in fields]
        return pa.schema([*fields, pa.field(SHARD, pa.int16()), pa.field(ROW, pa.int64())])

    def read(self, unit: Unit, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of a unit that are in shards of these numbers, batch by batch, by shard and then by row."""
        kept = np.arange(unit.rows) if unit.kept is None else np.flatnonzero(np.unpackbits(unit.kept))[: unit.rows]
        assert self.plan.entity is not None
        entity = self.plan.entity.members if self.plan.entity.shape else self.plan.entity.members[0]
        names, schema, chosen = self.names, self.schema, np.isin(np.arange(self.shards), numbers)
        for row, batch in read(unit, names):
            keys = [batch.column(names.index(name)) for name in entity_columns(entity)]
            entities, places = entities_of_rows(self.scan, entity, keys, row)
            shards = self._shards_of(entities)[places]
            order = np.argsort(shards, kind="stable")
            order = order[chosen[shards[order]]]
            begin = row - unit.start
            rows = unit.first + kept[begin : begin + batch.num_rows]
            columns = [*plain(batch).take(pa.array(order)).columns, pa.array(shards[order]), pa.array(rows[order])]
            yield pa.table(columns, schema=schema)

    def _shards_of(self, entities: Sequence[Any]) -> Any:
        known = self.shard_by_entity
        new = [entity for entity in entities if entity not in known]
        known.update(zip(new, shard_of(new, self.shards).tolist()))
        return np.fromiter(map(known.__getitem__, entities), np.int16, len(entities))

    def by_shard(self, numbers: Sequence[int], folder: str) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each shard, in the order of the source, which go through a temporary file in a folder."""
        path, schema = Path(folder, "rows.arrow"), self.schema
        try:
            with pa.ipc.new_file(path, schema) as file:
                for unit in self.scan.units:
                    for table in self.read(unit, numbers):
                        file.write(table)
        except OSError as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(
                f"The rows of {self.scan.label} are kept in a temporary file, which cannot be written: {error}. Make "
                f"room in {folder}."
            ) from error
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [file.get_batch(k) for k in range(file.num_record_batches)]
        edges = np.arange(self.shards + 1, dtype=np.int16)  # in the type of the column, which would be cast as a whole
        bounds = [np.searchsorted(batch.column(SHARD).to_numpy(), edges) for batch in batches]
        for number in numbers:
            slices = [
                batch.slice(int(at[number]), int(at[number + 1] - at[number]))
                for batch, at in zip(batches, bounds)
                if at[number] < at[number + 1]
            ]
            yield number, pa.Table.from_batches(slices, schema)
