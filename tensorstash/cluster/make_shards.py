"""`ts.cluster.shard`: cut a source by entity into stash files, of which each node opens some."""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import torch

from tensorstash.cluster.manifest import VERSION, Manifest
from tensorstash.cluster.resume import resume
from tensorstash.cluster.rows_by_shard import SourceRows
from tensorstash.cluster.shard_file import ShardReport, ShardWriter, frequency_of, write_index
from tensorstash.cluster.store import Store
from tensorstash.cluster.vocabularies import with_vocabularies
from tensorstash.cluster.with_ray import ray_data, write_with_ray
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import HASH, check_shards
from tensorstash.columns.spec import Columns
from tensorstash.common.calendar import GivenStep
from tensorstash.common.checks import flag, one_of, path_of
from tensorstash.common.keywords import suggests_keywords
from tensorstash.common.progress import bar_of
from tensorstash.common.warn import warn
from tensorstash.ingest.choice import Choice
from tensorstash.ingest.load import plan
from tensorstash.ingest.request import Duplicates, Request, Static
from tensorstash.ingest.segment_key import argument_keys, key_of
from tensorstash.ingest.snapshot import Snapshot
from tensorstash.sources.locate import is_paths, label_of_paths
from tensorstash.sources.read import Source


@suggests_keywords
def shard(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str],
    to: str | os.PathLike[str],
    shards: int = 64,
    time: str | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in ts.load
    duplicates: Duplicates = "error",
    filesystem: Any = None,
    frequency: GivenStep | None = None,
    engine: Literal["ray"] | None = None,
    progress: bool | None = None,
) -> Manifest:
    """Cut a source by entity into shards, each a stash file, for `ts.cluster.open`.

    The rows are grouped by shard, on this machine in a temporary file beside the shards (for an object store in
    TMPDIR), so the disk needs room for the rows twice. Then each shard is loaded into its file. Memory is needed for
    a batch of rows per thread, and for what `ts.load(file=)` needs for two shards.
    Vocabularies, types and the frequency are those of the whole source. Rows of an entity without times keep their
    order. A table with known times, `known=` of `ts.load`, is not cut: each node loads it whole. The manifest is
    written last. A run that was killed resumes, if it is called again with the same source and
    arguments: shards whose checksums are right are kept, and the others are made. Calls for one directory take turns.

    Args:
        source: files, a glob, a directory or a URL, a list of them, a frame, a table, a query, or a mapping of arrays.
        columns: a list of source names, or a mapping from your names to source names, lists of them (packs),
            `ts.column` and the like, or polars expressions. By default all that entity, time and static do not name.
        entity: the column, or the columns, whose value says which shard a row is in: `ts.cluster.shard_of`.
        to: a directory, or the URL of one in an object store, such as "s3://bucket/weather".
        shards: how many, 1 to 4,096, by default 64; several per node, so that nodes get similar shares.
        time: the column that orders the rows of an entity. By default they keep the order of the source.
        static: columns with one value per entity, or a frame with a row for each entity. By default none.
        dtype: the type of all floating columns. By default they keep theirs.
        filter: the rows to take: triples such as `("temp", ">", 32)`, or an expression. By default all.
        duplicates: `"keep"` for events, of which an entity may have several at one time. By default they are an error.
        filesystem: of pyarrow or fsspec, where the paths of the source are. By default it follows from the paths.
        frequency: the step of time, such as "15m", or a calendar, all times that exist. By default the step that most
            rows follow.
        engine: `None` is this machine. `"ray"` is Ray Data on the cluster that `ray.init` connects to: `to` must be the
            same place on all nodes, as must the files of the source; this process reads a source in memory. Ray runs a
            task again whose worker or node has died. The bytes are the same as on one machine.
        progress: show a bar; `None` shows it when the output is a terminal or a notebook.

    Returns:
        The `Manifest` of the shards, which `to` has as `manifest.json`.

    Raises:
        SegmentError: `to` has shards of another source or of other arguments, or cannot be written to. What `ts.load`
            raises for a source that it cannot load.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["B", "A", "B", "C"], "hour": [2, 1, 1, 1], "temp": [0.5, 1.5, 0.25, 0.0]}
        >>> where = tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=2, to=where)
        >>> [(shard.file, shard.rows) for shard in manifest.shards]
        [('shard-00000.safetensors', 2), ('shard-00001.safetensors', 2)]
    """
    one_of(engine, (None, "ray"), "engine")
    progress = None if progress is None else flag(progress, "progress", "None shows it on a terminal.")
    if not entity_columns(entity):
        raise ValueError("Rows go to shards by their entity; got no entity=. Name the entity column.")
    check_shards(shards)
    request = plan(
        source=source,
        filesystem=filesystem,
        columns=columns,
        static=static,
        entity=entity,
        time=time,
        dtype=dtype,
        filter=filter,
        duplicates=duplicates,
        frequency=frequency,
    ).request
    ray = None if engine is None else ray_data()
    store = Store(path_of(to, "to"))
    with store.alone():
        manifest, notes = _make(request, shards, store, ray, progress)
    for note in notes:
        warn(note)
    return manifest


def _make(request: Request, shards: int, store: Store, ray: Any, progress: bool | None) -> tuple[Manifest, list[str]]:
    """The manifest, and the texts of the warnings."""
    snapshot = Snapshot(request, progress)
    planned = snapshot.choice
    arguments = _arguments(snapshot, shards)
    run = resume(store, arguments, progress)
    if isinstance(run, Manifest):
        return run, []
    rows = SourceRows(_without_source(planned), shards)
    writer = _writer(planned, rows, store, arguments)
    missing = [number for number in range(shards) if number not in run.reports]
    finished = sum(report.record.rows for report in run.reports.values())
    with bar_of(planned.rows, "grouping by shard", progress) as bar:
        bar.update(finished)
        made = _write_here(rows, missing, writer, bar.update)
        if ray is not None:
            made = write_with_ray(ray, rows, missing, writer, is_paths(request.source))
        with closing(made):
            for place, (number, report) in enumerate(made):
                if place == 0:  # all rows have been read
                    snapshot.check_unchanged()
                    bar.begin("writing shards")
                    bar.update(finished)
                run.add(number, report)
                bar.update(report.record.rows)
    reports = [report for _, report in sorted(run.reports.items())]
    manifest = _manifest(writer, rows.schema, reports)
    run.finish(manifest)
    return manifest, [*dict.fromkeys(note for report in reports for note in report.warnings)]


def _writer(planned: Choice, rows: SourceRows, store: Store, arguments: dict[str, str]) -> ShardWriter:
    """What makes a shard of its rows; the rows of a table of static columns are read now."""
    choice, static = with_vocabularies(rows.choice), None
    if planned.table is not None:
        table = SourceRows(planned.table, rows.shards)
        static = pa.concat_tables(
            [part for unit in planned.table.source.units for part in table.read(unit, range(rows.shards))]
        )
        choice = replace(choice, table=_without_units(with_vocabularies(_without_source(planned.table))))
    units = tuple((unit.first, unit.place) for unit in planned.source.units)
    return ShardWriter(store, arguments, _without_units(choice), static, units)


def _manifest(writer: ShardWriter, schema: pa.Schema, reports: Sequence[ShardReport]) -> Manifest:
    """The manifest of finished shards, whose index is written now; `schema` has the entity columns."""
    choice, arguments = writer.choice, writer.arguments
    columns = (*choice.columns, *choice.static, *choice.joined)
    assert choice.entity is not None
    keys = pa.schema([schema.field(name) for name in choice.entity.members])
    return Manifest(
        version=VERSION,
        hash=HASH,
        arguments=arguments,
        shards=tuple(report.record for report in reports),
        index=write_index(writer.store, arguments, keys, reports),
        frequency=frequency_of(reports) if choice.step is None else choice.written_step,
        vocabularies={
            column.name: tuple(column.given_vocabulary) for column in columns if column.given_vocabulary is not None
        },
        types={c.name: " x ".join([str(c.dtype).removeprefix("torch."), *map(str, c.shape)]) for c in columns},
    )


def _without_source(choice: Choice) -> Choice:
    """The choice as other processes take it: they read its units, and not the arguments that led to them."""
    request = replace(choice.request, source=None, filesystem=None, filter=None, table=None)
    return replace(choice, request=request, table=None)


def _without_units(choice: Choice) -> Choice:
    """The choice as writers take it, which have the rows."""
    return replace(choice, source=Source(choice.source.label, choice.source.schema, (), 0))


def _write_here(
    rows: SourceRows, numbers: Sequence[int], writer: ShardWriter, advance: Callable[[int], object]
) -> Generator[tuple[int, ShardReport]]:
    """Group the rows, calling `advance` with their numbers on the way; then write the shards of these numbers."""
    # two threads: while the file of a shard is hashed and goes to its disk, the next one is loaded
    with writer.store.scratch() as folder, ThreadPoolExecutor(2, "tensorstash-shard") as pool:
        rows_of = rows.by_shard(numbers, folder, advance)
        yield from pool.map(lambda number: (number, writer.write(number, rows_of(number))), numbers)


def _arguments(snapshot: Snapshot, shards: int) -> dict[str, str]:
    """The source and the arguments, as texts; equal texts give equal bytes."""
    source, keys = snapshot.request.source, argument_keys(snapshot.request)
    label = label_of_paths(source) if is_paths(source) else snapshot.choice.source.label
    texts = {name: repr(value) for name, value in keys.items()}
    return texts | {"source": f"{label} ({key_of(snapshot.rows(None), keys)[:16]})", "shards": str(shards)}
