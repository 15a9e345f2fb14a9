"""One shard: its pieces, loaded into a stash file, in the memory that a load with `file=` takes for so many rows."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tensorstash.cluster.cut import Piece, Recipe, rejoined
from tensorstash.cluster.manifest import ShardRecord
from tensorstash.cluster.steps import Steps, steps_of
from tensorstash.cluster.store import Store, checksum, chunks_of
from tensorstash.ingest.memory import check_columns
from tensorstash.ingest.plan import survey, surveyed
from tensorstash.ingest.request import Request
from tensorstash.ingest.write import draft, ingest
from tensorstash.segments.segment import mapped
from tensorstash.stash.stash import Stash


@dataclass(frozen=True, slots=True)
class Job:
    """What a process needs to write a shard, besides its rows."""

    number: int
    request: Request  # of the pieces: without formulas and filter, and with the vocabularies of all shards
    recipe: Recipe
    store: Store
    key: str


@dataclass(frozen=True, slots=True)
class Done:
    """A shard that is there."""

    record: ShardRecord
    steps: Steps | None
    warnings: tuple[str, ...] = ()


def file_of(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05}.safetensors"


def write_shard(job: Job, pieces: Sequence[Piece]) -> Done:
    """Load the pieces of a shard, in the order of the source, and write the file."""
    table = None if job.request.table is None else survey(job.request.table, None, False)
    found = surveyed(job.request, rejoined(job.recipe, pieces), table, False)
    name = file_of(job.number)
    with ThreadPoolExecutor(1) as beside:  # the checksum is computed while the file goes to its disk
        with job.store.new(name) as target:
            check_columns(found.planned.nbytes, job.store.join(name), target.limits, on_disk=True)
            segment = draft(found.planned, target.fd, on_disk=True)
            written = ingest(found, segment, False, lambda _: None)
            segment.seal(written.header, job.key)
            stash = Stash(mapped(os.dup(target.fd)))
            record = beside.submit(_record_and_close, name, os.dup(target.fd), stash)
            steps = steps_of(stash)
        return Done(record.result(), steps, written.warnings)


def _record_and_close(name: str, fd: int, stash: Stash) -> ShardRecord:
    try:
        return record_of(name, fd, stash)
    finally:
        os.close(fd)


def record_of(name: str, fd: int, stash: Stash) -> ShardRecord:
    """The record of a file, by its descriptor, and of the stash in it."""
    return ShardRecord(name, stash.rows, len(stash.offsets) - 1, os.fstat(fd).st_size, checksum(chunks_of(fd)))
