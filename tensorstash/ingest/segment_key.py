"""The key of a shared segment: a hash of everything that affects its bytes."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b, sha256
from importlib.metadata import version as release_of
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pyarrow as pa

from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.spec import ColumnSpec
from tensorstash.common.calendar import Calendar
from tensorstash.common.checks import is_flag
from tensorstash.ingest.request import Request, Specs, StepOrTimes
from tensorstash.segments.directory import check_label
from tensorstash.segments.format import VERSION
from tensorstash.sources.file import WILDCARD, before_wildcard
from tensorstash.sources.locate import is_paths, label_of_paths
from tensorstash.sources.read import Source, Wanted, read
from tensorstash.sources.storage import without_views
from tensorstash.sources.tables import open_arrow
from tensorstash.stash.header import names_checksum
from tensorstash.stash.month_days import kept_days
from tensorstash.stash.stash import Stash


def contents(source: Source, names: Sequence[str]) -> str:
    """A hash of columns of a source in memory, with their types."""
    digest = blake2b(digest_size=32)
    file = SimpleNamespace(write=digest.update, flush=lambda: None, close=lambda: None, closed=False)
    schema = pa.schema(
        [field.with_type(without_views(pa.nulls(0, field.type)).type) for field in map(source.schema.field, names)]
    )
    with pa.PythonFile(file, mode="w") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for unit in source.units:
            for _, batch in read(unit, names):
                # views are cast, because equal texts may have others
                columns = [*map(without_views, batch.columns)]
                stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return digest.hexdigest()


def key_of(source: object, arguments: Mapping[str, object]) -> str:
    """64 hex digits for the rows of a source, as `Snapshot.rows` names them, and the `argument_keys` of a request."""
    decisive = {
        "format": VERSION,
        "release": release_of("tensorstash"),  # another release may decode differently
        "source": source,
        "arguments": {name: repr(arguments[name]) for name in arguments},
    }
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def argument_keys(request: Request) -> dict[str, object]:
    """The arguments that change what is stored. A `ValueError` if one has no key that is equal in all processes."""

    def keyed(specs: Specs) -> list[tuple[str, ColumnSpec]]:
        return [(name, replace(spec, members=tuple(map(member_key, spec.members)))) for name, spec in specs.items()]

    def member_key(member: Any) -> Any:
        # bytes, so that a column name never equals the key of a formula
        return request.formulas[member].key().encode() if member in request.formulas else member

    return {
        "columns": None if request.columns is None else keyed(request.columns),
        "static": keyed(request.static),
        "table": None if request.table is None else argument_keys(request.table),
        "entity": request.entity if isinstance(request.entity, str) else [*entity_columns(request.entity)],
        "time": request.time,
        "known": None if request.known is None else (member_key(request.known), request.known_name),
        "dtype": request.dtype,
        "filter": None if request.filter is None else request.filter.key(),
        "shard": request.shard,
        "duplicates": request.duplicates,
        "like": None if request.like is None else (keyed(request.carried), *_of_like(request, request.like)),
        "frequency": _of_step(request.frequency),
    }


def _of_step(given: StepOrTimes) -> object:
    if isinstance(given, Calendar):
        return given.identity
    if isinstance(given, pa.ChunkedArray):
        return contents(open_arrow(pa.table({"times": given.combine_chunks()}), Wanted(None)), ["times"])
    return given


def _of_like(request: Request, like: Stash) -> tuple[object, ...]:
    days = () if (kept := kept_days(like)) is None else (crc32(kept.data),)
    carried = [(name, like.segment.checksums[name]) for name in request.carried]
    names = [("", names_checksum(like)), *((name, names_checksum(like, name)) for name in (*like, *like.static))]
    return names, request.unknown, carried, *days


def check_version(version: object, request: Request, *, kept: bool) -> None:
    """Raise unless `version=` is a text, the stash is kept, and some rows are not of files, whose stamps suffice."""
    if version is None:
        return
    if not isinstance(version, str) or not version:
        raise TypeError(f"version must be a text that names the rows of the source, got {version!r}.")
    if not kept:
        raise ValueError("version= finds a stash that was kept, so it needs share= or file=. Leave it out.")
    if is_paths(request.source) and request.table is None:
        raise ValueError(
            "version= names rows that a load would have to read; files are known by their sizes and times. Leave it "
            "out."
        )


def share_of(share: object) -> object:
    """The label of `share=` or `True`; `None` if nothing is shared."""
    return (True if share else None) if is_flag(share) else share


def check_share(share: object, source: Any) -> str:
    """The checked label of `share=`."""
    return check_label(label_of(source) if share is True else share, "share")


def label_of(source: Any) -> str:
    """A label for a source: the name of the first path without its suffix, or the type of the source.

    For a glob such as "weather/*.parquet" it is the name of the directory in which the search begins.
    """
    while isinstance(source, (list, tuple)) and source:
        source = source[0]
    name = type(source).__name__.lower()
    if isinstance(source, (str, os.PathLike)):
        path = os.path.abspath(label_of_paths(source))
        is_glob = WILDCARD.search(path) and not os.path.exists(path)
        name = Path(before_wildcard(path) if is_glob else path).stem
    return re.sub(r"[^A-Za-z0-9_.+@=-]+", "-", name).lstrip("_.+@=-")[:100] or "stash"
