"""Write and read the file of one shard, and the index of all shards."""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorstash.cluster.manifest import INDEX, ShardRecord, key_of
from tensorstash.cluster.rows_by_shard import ROW, SHARD
from tensorstash.cluster.store import Store, checksum
from tensorstash.common.frequency import Frequency
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.load import plan
from tensorstash.ingest.write import write_load
from tensorstash.segments.limits import disk_limit
from tensorstash.segments.segment import open_saved
from tensorstash.sources.tables import open_table
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import pairs_per_frequency


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A finished shard: its record, and the part of the index and the manifest that comes from it."""

    record: ShardRecord
    entities: dict[Any, int]  # of each its rows
    pairs: dict[Frequency, int]  # how many pairs of consecutive rows are one step of each frequency apart
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardWriter:
    """What a process needs besides the rows to write shards."""

    store: Store
    arguments: dict[str, str]
    choice: Choice  # of the whole source, with its vocabularies
    static: pa.Table | None  # the rows of the table of static columns, with their shards
    units: tuple[tuple[int, str], ...]  # the first row of each unit of the source, and its name in errors

    def write(self, number: int, rows: pa.Table) -> ShardReport:
        """Write the shard of these rows, which are in the order of the source."""
        choice, numbers = self.choice, rows[ROW].to_numpy()
        source = open_table(rows, rows.schema, choice.source.label)
        units = [replace(unit, name=partial(self._name_row, numbers[unit.start :])) for unit in source.units]
        table = choice.table
        if self.static is not None and table is not None:
            static = self.static.filter(pc.field(SHARD) == number)
            table = replace(table, source=open_table(static, static.schema, table.source.label), rows=static.num_rows)
        shard = replace(choice, source=replace(source, units=tuple(units)), rows=rows.num_rows, table=table)
        return _write(self.store, f"shard-{number:05}.safetensors", key_of(self.arguments, number), shard)

    def _name_row(self, numbers: Any, at: int) -> str:
        row = int(numbers[at])
        place = self.units[bisect_right([first for first, _ in self.units], row) - 1][1]
        return f"{row:,}" if place == self.choice.source.label else f"{row:,} ({place})"


def write_index(
    store: Store, arguments: dict[str, str], schema: pa.Schema, reports: Sequence[ShardReport]
) -> ShardRecord:
    """Write a stash with a row for each entity of all shards: its shard, and its rows; `schema` has entity columns."""
    entities = [name if isinstance(name, tuple) else (name,) for report in reports for name in report.entities]
    columns = {f"entity.{k}": pa.array([name[k] for name in entities], kind) for k, kind in enumerate(schema.types)}
    entity = [*columns] if len(columns) > 1 else "entity.0"
    shards = np.repeat(np.arange(len(reports)), [len(report.entities) for report in reports])
    columns["shard"] = pa.array(shards, pa.uint16())
    columns["rows"] = pa.array([rows for report in reports for rows in report.entities.values()], pa.int64())
    choice = plan(pa.table(columns), ["shard", "rows"], entity=entity).choice
    return _write(store, INDEX, key_of(arguments, INDEX), choice).record


def read_shard(store: Store, record: ShardRecord, key: str) -> ShardReport | None:
    """The report of a shard; `None` if its file is not there, or has other bytes than its record says."""
    if store.size(record.file) != record.bytes:
        return None
    with store.local_path(record.file) as path:
        if checksum(path) != record.checksum:
            return None
        segment = open_saved(path)
        return _report(record, Stash(segment), ()) if segment.key == key else None


def frequency_of(reports: Sequence[ShardReport]) -> str | int | None:
    """The frequency of most pairs of rows. If several are equally common: one of the calendar, then the shortest."""
    pairs = sum((Counter(report.pairs) for report in reports), Counter[Frequency]())
    if not pairs:
        return None
    best = min(pairs, key=lambda step: (-pairs[step], step.kind == "ticks", step.count))
    return best.text if best.clock.unit is not None else best.count


def _write(store: Store, file: str, key: str, choice: Choice) -> ShardReport:
    with store.scratch() as folder, open(os.path.join(folder, file), "w+b") as target, ThreadPoolExecutor(1) as beside:
        limits = [disk_limit(target.fileno(), folder)]
        _, warnings = write_load(choice, target.fileno(), limits, on_disk=True, key=key, progress=False)
        digest = beside.submit(checksum, target.fileno())  # computed while the file goes to its disk
        stash, nbytes = Stash(open_saved(target.name)), os.stat(target.fileno()).st_size
        store.put(target.name, file)
        record = ShardRecord(file, stash.rows, len(stash.offsets) - 1, nbytes, digest.result())
        return _report(record, stash, warnings)


def _report(record: ShardRecord, stash: Stash, warnings: tuple[str, ...]) -> ShardReport:
    offsets, pairs = stash.offsets.numpy(), {}
    if stash.time is not None and stash.info.time is not None and not stash.info.time.duplicates:
        pairs = pairs_per_frequency(offsets, stash.time.numpy(), stash.clock)
    return ShardReport(record, dict(zip(stash.entities, np.diff(offsets).tolist())), pairs, warnings)
