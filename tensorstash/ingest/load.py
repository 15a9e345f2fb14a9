"""`ts.load`: a source as a stash, private to this process or shared by the machine."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensorstash.columns.spec import Columns
from tensorstash.common.checks import flag, flag_or_none, path_of, seconds
from tensorstash.errors import TensorstashError
from tensorstash.ingest.request import Duplicates, Request, Static, parse_request
from tensorstash.ingest.segment_key import argument_keys, check_share, check_unchanged, check_version, contents, key_of
from tensorstash.segments.directory import Name
from tensorstash.segments.limits import memory_limits
from tensorstash.segments.on_disk import FileTarget, obtain_file
from tensorstash.segments.publish import Build, UnpublishedFile, obtain
from tensorstash.segments.segment import Segment, mapped
from tensorstash.sources.file import File, stamps
from tensorstash.sources.locate import find, is_reordered
from tensorstash.stash.stash import Stash

if TYPE_CHECKING:
    from tensorstash.ingest.plan import Survey

_REORDERED = (
    "Files come in natural order of their paths; the list has them in another order, and without time= nothing else "
    "orders the rows. Name the time column, sort the list, or load a LazyFrame in your order: "
    "pl.concat([pl.scan_parquet(path) for path in paths])."
)


def load(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    shard: tuple[int, int] | None = None,
    like: Stash | None = None,
    duplicates: Duplicates = "error",
    filesystem: Any = None,
    share: str | bool | None = None,
    file: str | os.PathLike[str] | None = None,
    version: str | None = None,
    overwrite: bool = False,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Stash:
    """Load the named columns once into memory, or into a file, as a dict of tensors.

    With `share=` there is one copy per machine: the first process that makes a call loads it, and all that make the
    same call attach it, until `ts.shared.remove(label)`, `ts.shared.prune` or a reboot.

    With `file=` the columns are written to a file, which may be larger than memory, and mapped as `ts.open` does. The
    load needs memory for decoding, and 24 bytes per row if rows are not grouped by entity and ordered by time.

    Args:
        source: Parquet, CSV or TSV (`.csv`, `.csv.gz`, `.csv.zst`), or Arrow IPC files or streams, local or in any file
            system: a path, a glob, a directory, a URL such as `s3://bucket/weather/*.parquet`, or a list of them; a
            polars or pandas frame; a pyarrow Table, RecordBatch or Dataset; a Hugging Face Dataset; a mapping of arrays
            or tensors. Files come in natural order of their paths, part-2 before part-10, and need the same columns;
            types of different widths or units are widened, and integers in some files to the floats of others, if no
            integer is rounded. Parts of paths such as `year=2024` in a directory or glob are columns.
            Also a polars LazyFrame, a pyarrow RecordBatchReader or Scanner, a Ray Dataset (Ray keeps the order of its
            rows only with `preserve_order`), and whatever has `__arrow_c_stream__`, such as relations of DuckDB: these
            are read once into an unnamed file in the temporary directory (TMPDIR), never whole into memory.
        columns: a list of source names, or a mapping from your names to a source name, a list of names (packed into one
            `(rows, k)` column), a `ts.column`, `ts.hashed`, `ts.is_valid` or `ts.calendar`. Only these are decoded.
            `None`: all columns that entity, time and static do not name. A field of a struct column has a dotted path,
            `{"speed": "wind.speed"}`, wherever a source name may stand. So may a polars expression that computes each
            value from its own row; for lags and the like, load a LazyFrame. Columns that only an expression names are
            not stored. In an expression text is a String, and bfloat16 a Float32.
        entity: the text or integer column that identifies the series of each row, or a list of such columns: then an
            entity is a tuple of their values. Without it all rows are one series.
        time: the timestamp, date or integer column that orders the rows of a series, kept as int64. Text in ISO 8601
            is read as timestamps in microseconds.
        static: columns that have one value in each entity, written like `columns`; `stash.static` holds them,
            `(entities, ...)`. Values are compared as they are stored, and missing values are equal. Or a frame or table
            in memory, `static=stores`, that has the entity columns and one row for each entity; `static=(stores,
            columns)` takes only these columns of it. A missing row is an error; a row of an unknown entity is not used,
            with a warning.
        dtype: cast the floating columns to this floating type, static ones too; `None` keeps the source's.
        filter: the rows to load, as a list of tuples that must all hold, `[("year", ">=", 2020), ("station", "in",
            ["A", "B"])]`, as several such lists, of which one must hold, or as an expression of pyarrow or polars,
            `pyarrow.compute.field("year") >= 2020` or `pl.col("year") >= 2020`. A comparison with a null is not true,
            `not in` included. In tuples, text is compared with dates and timestamps as a time in ISO 8601, in the zone
            of the column. Files whose paths exclude all rows are not decoded, nor are row groups whose statistics do,
            unless the filter is of polars. Of the others the columns of the filter are read first.
        shard: `(k, n)` loads only the entities of shard k of n, by `ts.cluster.shard_of`, from the row groups that
            have any. For many shards, `ts.cluster.shard` reads the source once.
        like: a stash whose entities and codes of text keep their numbers, as for a model that has embeddings of them;
            new ones follow in ascending order. Entities of `like` without rows become series without rows, whose static
            values are missing: NaN, code -1 or `fill=`, or else an error. A column's own vocabulary takes precedence.
        duplicates: `"error"` refuses a time that an entity has in several rows, which in regular series is a mistake.
            `"keep"` is for events: rows of one time stay in the order of the source. Their windows need
            `gaps="ignore"`, or spans in time.
        filesystem: where the paths are: a `pyarrow.fs.FileSystem` or an fsspec file system; `None`: this machine, or
            for a URL what pyarrow or fsspec have for its scheme.
        share: a label for a copy that all processes of this user attach; `True` makes one of the source's name.
            Changed files, other data or other arguments make another copy under the same label.
        file: a path for a stash on disk, such as "weather.safetensors". It appears once it is complete and on disk. A
            file that the same load has made is opened as it is; of several processes one writes and the others wait.
        version: with `share=` or `file=`, a text that names the rows of a source that is not files, and of a table
            given as `static=`: you vouch that equal versions mean equal rows. Later processes attach without reading
            or hashing them. Another version, or none, is another stash.
        overwrite: with `file=`, replace a file that another load or program made, once the new one is complete. Without
            it such a file is an error.
        timeout: with `share=` or `file=`, seconds to wait for another process that loads; `None` waits until it
            is done.
        progress: show a bar, in rows and MB/s; `None` shows it when the output is a terminal or a notebook.

    Returns:
        A `Stash` whose rows are grouped by entity, the entities in ascending order, and ordered by time. Ctrl-C frees
        all memory of the load. A `UserWarning` is given if no value of a given vocabulary occurs in its column, or if
        most distinct values of a text column read as numbers.

    Raises:
        SourceError: no file, an unreadable one, or files that differ. ColumnError: no such column. SchemaError: a type
        or name that a stash cannot hold, or an expression that depends on other rows. DataError: a null, a lossy cast,
        a duplicate time, an expression that fails in a row, or a static column that is not constant in an entity.
        ValueError: an expression without a column, with several outputs, or with Python functions and `share=` or
        `file=`; arguments that contradict each other. RuntimeError: an expression in a forked process whose parent has
        used polars. NoMemoryError: the columns do not fit into memory, or with `file=` onto the disk. SegmentError: the
        directory for shared segments is not this user's alone, or `file=` cannot be written or has another stash.
        TimeoutError: see `timeout`. A process that waits for the load of another one gets its error.

    Example:
        >>> import tensorstash as ts
        >>> data = {"station": ["B", "A", "B"], "hour": [2, 1, 1], "temp": [0.5, None, 0.25]}
        >>> stash = ts.load(data, ["temp"], entity="station", time="hour")
        >>> stash.entities, stash.offsets.tolist(), stash["temp"].tolist()
        (['A', 'B'], [0, 1, 3], [nan, 0.25, 0.5])
        >>> data["region"] = ["SE", "NO", "SE"]
        >>> stash = ts.load(data, ["temp"], entity="station", time="hour", static=["region"])
        >>> stash.static, stash.vocabulary("region")
        ({'region': tensor([0, 1], dtype=torch.int32)}, ['NO', 'SE'])
        >>> import polars as pl
        >>> ts.load(data, {"x": pl.col("temp") * 4, "log": pl.col("hour").log(2)}, entity="station")["log"]
        tensor([0., 1., 0.], dtype=torch.float64)
    """
    request = parse_request(
        source,
        columns,
        entity=entity,
        time=time,
        static=static,
        dtype=dtype,
        filter=filter,
        shard=shard,
        like=like,
        duplicates=duplicates,
        filesystem=filesystem,
    )
    progress = flag_or_none(progress, "progress")
    path = _check_targets(share, file, overwrite, timeout)
    label = None if share is None or share is False else check_share(share, source)
    check_version(version, request, kept=path is not None or label is not None)

    def get(hash_: str, build: Build) -> Segment:
        if path is not None:
            return obtain_file(FileTarget(path, hash_, overwrite), build, timeout)
        return obtain(Name(str(label), hash_[:16]), build, timeout)

    try:
        if path is None and label is None:
            stash, noted = _load_private(request, progress)
        else:
            stash, noted = _load_once(request, version, progress, get)
    except TensorstashError as error:
        # our frames, most of them of threads, say nothing that its message and its cause do not
        raise error.with_traceback(None)  # noqa: B904  the cause that it has stays
    order = [_REORDERED] if time is None and is_reordered(source) else []
    for warning in (*order, *_warnings_of(stash), *noted):
        warnings.warn(warning, UserWarning, stacklevel=2)
    return stash


def _check_targets(share: object, file: object, overwrite: bool, timeout: Any) -> str | None:
    """Check that the arguments agree, and return the path of `file=`."""
    shared, overwrite = share is not None and share is not False, flag(overwrite, "overwrite")
    if file is None and overwrite:
        raise ValueError("overwrite= replaces the file of file=, so it needs file=. Leave it out.")
    if file is not None and shared:
        raise ValueError("A stash is shared memory or a file; got share= and file=. Leave one out.")
    if file is None and not shared and timeout is not None:
        raise ValueError("timeout= needs share= or file=: it limits the wait for another process. Leave it out.")
    seconds(timeout, "timeout")
    if file is None:
        return None
    return os.path.realpath(path_of(file, "file"))


def _warnings_of(stash: Stash) -> Iterator[str]:
    columns = [(stash.about(name), len(tensor)) for name, tensor in (*stash.items(), *stash.static.items())]
    if names := [repr(info.name) for info, rows in columns if info.unknown and info.unknown + info.missing == rows]:
        yield (
            f"No value of {' and '.join(names)} is in the given vocabulary: all have the code of unknown values. "
            "Compare the spelling with the source."
        )


# Engines are imported by the functions that need them: a process that attaches a stash is spared most of a second.


def _load_private(request: Request, progress: bool | None) -> tuple[Stash, tuple[str, ...]]:
    from tensorstash.ingest.write import write_load

    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    draft, noted = write_load(_surveyed(request, files, progress), None, memory_limits(), progress=progress)
    check_unchanged(request.source, request.filesystem, before)
    stash = Stash(mapped(os.dup(draft.fd)))
    stash.segment.populate()
    return stash, noted


def _load_once(
    request: Request, version: str | None, progress: bool | None, get: Callable[[str, Build], Segment]
) -> tuple[Stash, tuple[str, ...]]:
    """Attach or build the stash with `get`; warnings come only from a build.

    Its key needs the stamps of files, and the rows of other sources only without `version`.
    """
    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    in_memory = _surveyed(request, None, progress) if files is None and version is None else None
    noted: list[str] = []
    data: object = before if in_memory is None else contents(in_memory.scanned, in_memory.planned.read)
    if version is not None:
        data = {"stamps": before, "version": version}
    elif request.table is not None:
        table = _surveyed(request.table, None, progress)
        data = [data, contents(table.scanned, table.planned.read)]
    segment_key = key_of(data, argument_keys(request))

    def build(target: UnpublishedFile, report: Callable[[float], None]) -> None:
        from tensorstash.ingest.write import write_load

        _, texts = write_load(
            in_memory or _surveyed(request, files, progress),
            target.fd,
            target.limits(),
            on_disk=target.on_disk,
            key=segment_key,
            progress=progress,
            report=report,
        )
        noted.extend(texts)
        check_unchanged(request.source, request.filesystem, before)

    return Stash(get(segment_key, build)), tuple(noted)


def _surveyed(request: Request, files: Sequence[File] | None, progress: bool | None) -> "Survey":
    from tensorstash.ingest.plan import survey

    return survey(request, files, progress)
