"""`ts.cluster.shard`: a source cut by entity into stash files, which nodes share out among them."""

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Literal, Protocol

import torch

from tensorstash.cluster.begun import Begun, begun
from tensorstash.cluster.cut import Cut, Piece, Recipe, blocks_of, recipe_of
from tensorstash.cluster.here import Here
from tensorstash.cluster.index import write_index
from tensorstash.cluster.manifest import VERSION, Manifest, ShardRecord
from tensorstash.cluster.on_ray import OnRay
from tensorstash.cluster.steps import frequency_of
from tensorstash.cluster.store import Store
from tensorstash.cluster.vocabularies import request_for_pieces, vocabularies
from tensorstash.cluster.write import Done, Job
from tensorstash.columns.sharding import HASH, check_shards
from tensorstash.columns.spec import Columns
from tensorstash.common.checks import at_least
from tensorstash.common.progress import Bar
from tensorstash.ingest.key import argument_keys, check_unchanged, contents, key
from tensorstash.ingest.plan import Survey, survey
from tensorstash.ingest.request import Request, Static, parse_request
from tensorstash.sources.file import File
from tensorstash.sources.locate import find, is_paths, label_of_paths
from tensorstash.sources.scan import Scan
from tensorstash.sources.stamps import stamps


class Engine(Protocol):
    """Where the work is done."""

    def cuts(self, recipe: Recipe, blocks: Sequence[Scan]) -> Iterator[Cut]:
        """The blocks of a source, cut, in their order; the streams of their pieces lie wherever the engine has them."""

    def write(self, jobs: Sequence[tuple[Job, Sequence[Piece]]]) -> Iterator[tuple[int, Done]]:
        """Write the shards of the jobs."""


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
    schema: Mapping[str, Any] | None = None,
    layout: Literal["lists", "wide"] | None = None,
    filesystem: Any = None,
    engine: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Manifest:
    """Cut a source by entity into shards, each a stash file, for `ts.cluster.open`.

    The source is read once, whatever the order of its rows. They go into a temporary file (TMPDIR), a piece for each
    shard and block of the source, and each shard is then loaded from its pieces. So memory is needed for a few blocks
    of the source, of 64 MB or a row group each, and for each worker what `ts.load(file=)` needs for one shard. The
    disks need room for the rows twice. The vocabularies of text columns and the types are those of the whole source.

    The manifest is written last. A run that was ended goes on, if it is called again with the same source and
    arguments: shards that are there are kept if their checksums are right.

    Args:
        source: as for `ts.load`.
        columns: as for `ts.load`.
        entity: the column, or the columns, whose value says which shard a row is in: `ts.cluster.shard_of`.
        to: a directory, or the URL of one in an object store, such as "s3://bucket/weather".
        shards: how many, 1 to 4,096; several to a node, so that nodes get equal shares.
        time: as for `ts.load`.
        static: as for `ts.load`.
        dtype: as for `ts.load`.
        filter: as for `ts.load`.
        schema: as for `ts.load`.
        layout: as for `ts.load`.
        filesystem: as for `ts.load`, where the paths of the source are.
        engine: `None` is this machine. `"ray"` is the Ray cluster that `ray.init` connects to: tasks on all its nodes
            read blocks of the source and put the pieces of each shard into Ray's object store, and a task for each
            shard writes it to `to`, which must be the same place on all nodes, as must the files of the source; a
            source in memory is cut here. Ray runs a task again whose worker or node has died, and those whose pieces
            were lost with it. The bytes are the same as on one machine.
        workers: how many shards are written at the same time: each by a process of its own, on systems with `/proc`.
            `None` is one, and with Ray as many as its CPUs. Even one uses several threads, and a process takes seconds
            to start, so more pay only for many gigabytes. For more than one on this machine, a script needs
            `if __name__ == "__main__":`, as for all of `multiprocessing`.
        progress: show a bar; `None` shows it when the output is a terminal or a notebook.

    Returns:
        The `Manifest`.

    Raises:
        SegmentError: there are shards in `to` that were made of another source or with other arguments, or it cannot
        be written to. What `ts.load` raises for a source that it cannot load.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["B", "A", "B", "C"], "hour": [2, 1, 1, 1], "temp": [0.5, 1.5, 0.25, 0.0]}
        >>> where = tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=2, to=where)
        >>> [(shard.file, shard.rows) for shard in manifest.shards]
        [('shard-00000.safetensors', 2), ('shard-00001.safetensors', 2)]
    """
    if engine not in (None, "ray"):
        raise ValueError(f'engine= is None, which is this machine, or "ray"; got {engine!r}.')
    if workers is not None:
        at_least(1, workers, "workers")
    request = parse_request(
        source=source,
        filesystem=filesystem,
        columns=columns,
        static=static,
        entity=entity,
        time=time,
        dtype=dtype,
        filter=filter,
        schema=schema,
        layout=layout,
        shard=(0, shards),  # refuses a wrong number, and a source without entities
    )
    if request.entity_formulas:
        formula = next(iter(request.entity_formulas.values()))
        raise ValueError(
            f"Shards are cut while rows are read, before those of an entity are together; got {formula!r}. Load each "
            "shard with ts.load(..., shard=(k, n), file=...), which computes it."
        )
    table = None if request.table is None else replace(request.table, shard=None)
    request = replace(request, shard=None, table=table)
    store = Store(os.fspath(to))
    files = find(request.source, request.filesystem)

    def engine_for(label: str) -> Engine:
        return Here(label, workers or 1) if engine is None else OnRay(files is not None, workers)

    return _made(request, files, check_shards(shards), store, engine_for=engine_for, progress=progress)


def _made(
    request: Request,
    files: Sequence[File] | None,
    shards: int,
    store: Store,
    *,
    engine_for: Callable[[str], Engine],
    progress: bool | None,
) -> Manifest:
    before = stamps(files or [])
    found = survey(request, files, progress)
    store.make()
    there = begun(store, _arguments(request, shards, found, before), progress)
    if there.manifest is not None:
        return there.manifest
    wanted = frozenset(range(shards)).difference(there.done)
    recipe = recipe_of(found.scanned, found.planned, shards, wanted)
    engine = engine_for(recipe.label)
    with Bar(total=2 * found.planned.rows, unit=" rows", unit_scale=True, disable=_hidden(progress)) as bar:
        bar.update(sum(done.record.rows for done in there.done.values()))
        counts, words, pieces = _cut(engine, recipe, found, bar)
        check_unchanged(request.source, request.filesystem, before)
        index = write_index(store, recipe, counts)
        plain = request_for_pieces(request, found, words)
        jobs = [(_job(number, plain, recipe, there), pieces.get(number, [])) for number in sorted(wanted)]
        for number, done in engine.write(jobs):
            there.add(number, done)
            bar.update(done.record.rows)
    manifest = _manifest(there, index, found, plain)
    there.finish(manifest)
    for warning in dict.fromkeys(text for done in there.done.values() for text in done.warnings):
        warnings.warn(warning, UserWarning, stacklevel=3)
    return manifest


def _hidden(progress: bool | None) -> bool | None:
    return None if progress is None else not progress


def _cut(
    engine: Engine, recipe: Recipe, found: Survey, bar: Any
) -> tuple[dict[Any, int], dict[str, dict[str | None, None]], dict[int, list[Piece]]]:
    """The rows of each entity, the words of each text column, and the pieces of each shard, in the source's order."""
    counts: dict[Any, int] = {}
    words: dict[str, dict[str | None, None]] = {name: {} for name in recipe.texts}
    pieces: dict[int, list[Piece]] = {}
    for block in engine.cuts(recipe, blocks_of(found.scanned, found.planned)):
        for name, count in block.counts.items():
            counts[name] = counts.get(name, 0) + count
        for name, values in block.words.items():
            words[name].update(dict.fromkeys(values))
        for number, (rows, stream) in block.pieces.items():
            pieces.setdefault(number, []).append(Piece(rows, block.places, stream))
        bar.update(block.rows)
    return counts, words, pieces


def _arguments(request: Request, shards: int, found: Survey, before: Sequence[Any]) -> dict[str, str]:
    """What decides every byte of the shards, as texts."""
    data: object = [*before] or contents(found.scanned, found.planned.read)
    label = label_of_paths(request.source) if is_paths(request.source) else found.planned.source
    if request.table is not None and found.table is not None:
        data = [data, contents(found.table.scanned, found.table.planned.read)]
    own = argument_keys(request)
    digest = key(data, own)[:16]
    return {name: repr(value) for name, value in own.items()} | {"source": f"{label} ({digest})", "shards": str(shards)}


def _job(number: int, plain: Request, recipe: Recipe, there: Begun) -> Job:
    """What a process needs to write a shard; `plain` is the request for its pieces."""
    table = None if plain.table is None else replace(plain.table, shard=(number, recipe.shards))
    text = json.dumps([number, dict(there.arguments)], sort_keys=True)
    return Job(number, replace(plain, table=table), recipe, there.store, sha256(text.encode()).hexdigest())


def _manifest(there: Begun, index: ShardRecord, found: Survey, plain: Request) -> Manifest:
    planned = found.planned
    done = [there.done[number] for number in sorted(there.done)]
    all_columns = (*planned.columns, *planned.static, *planned.joined)
    return Manifest(
        version=VERSION,
        hash=HASH,
        arguments=there.arguments,
        shards=tuple(one.record for one in done),
        index=index,
        frequency=frequency_of(one.steps for one in done),
        vocabularies=vocabularies(plain),
        types={c.name: " x ".join([str(c.dtype).removeprefix("torch."), *map(str, c.shape)]) for c in all_columns},
    )
