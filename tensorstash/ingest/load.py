"""`ts.load`: a source as a stash, of this process alone or one for the machine."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import torch

from tensorstash.columns.layout import Regular
from tensorstash.columns.spec import Columns
from tensorstash.common.checks import is_integer
from tensorstash.ingest.key import argument_keys, check_share, check_unchanged, contents, key
from tensorstash.ingest.memory import check_columns
from tensorstash.ingest.plan import survey
from tensorstash.ingest.request import Request, Static, parse_request
from tensorstash.ingest.write import draft, ingest
from tensorstash.segments.directory import Name
from tensorstash.segments.limits import memory_limits
from tensorstash.segments.on_disk import Target, obtain_file
from tensorstash.segments.publish import Build, obtain
from tensorstash.segments.segment import Segment
from tensorstash.segments.unpublished import UnpublishedFile
from tensorstash.sources.locate import find
from tensorstash.sources.stamps import stamps
from tensorstash.stash.stash import Stash


def load(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | Regular | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    schema: Mapping[str, Any] | None = None,
    layout: Literal["lists", "wide"] | None = None,
    shard: tuple[int, int] | None = None,
    filesystem: Any = None,
    share: str | bool | None = None,
    file: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Stash:
    """Load the named columns once into memory, or into a file, as a dict of tensors.

    With `share=` there is one copy per machine: of all processes that make the same call, now or later, the first loads
    the columns and the others attach its copy. The copy stays until `ts.shared.remove(label)`, `ts.shared.prune` or a
    reboot.

    With `file=` the columns are written to a file instead, which may be larger than memory, and mapped as `ts.open`
    does. The load then needs memory for decoding only, and 24 bytes per row if rows are not grouped by entity and
    ordered by time.

    Args:
        source: Parquet, CSV or TSV (`.csv`, `.csv.gz`, `.csv.zst`), or Arrow IPC files or streams, here or in any file
            system: a path, a glob, a directory, a URL such as `s3://bucket/weather/*.parquet`, or a list of them; a
            polars or pandas frame; a pyarrow Table, RecordBatch or Dataset; a Hugging Face Dataset; a mapping of arrays
            or tensors. The files of one source need the same columns; integers, floats and timestamps of different
            widths and units are widened to the widest, and integers in some files and floats in others to floats, if no
            integer is rounded. Of a directory or glob, parts of paths such as `year=2024` are columns.
            Also a polars LazyFrame, a pyarrow RecordBatchReader or Scanner, a Ray Dataset (Ray keeps the order of its
            rows only with `preserve_order`), and whatever has `__arrow_c_stream__`, as relations of DuckDB: these are
            read to their end once, never whole in memory, and what is wanted of them lies in an unnamed file in the
            temporary directory (TMPDIR) during the load.
        columns: a list of source names, or a mapping from your names to a source name, a list of names (packed into one
            `(rows, k)` column), a `ts.column`, `ts.hashed`, `ts.is_valid`, `ts.calendar` or `ts.per_entity`. Only these
            are decoded. `None`: all columns that entity, time and static do not name. A field of a struct column has a
            dotted path, `{"speed": "wind.speed"}`, wherever a source name may stand. A polars expression may replace
            any source name. It is computed while the source is read, each value from its own row; `ts.per_entity`
            computes one over the ordered rows of each entity. Its input columns are read but not stored. In it, text is
            a String, bfloat16 a Float32, and integers overflow as in polars.
        entity: the text or integer column that identifies the series of each row, or a list of such columns: then an
            entity is a tuple of their values. Without it all rows are one series.
        time: the timestamp, date or integer column that orders the rows of a series, kept as int64. Text is taken if
            it is in ISO 8601, as timestamps in microseconds. With `layout="lists"` also `ts.regular(...)`.
        static: columns that have one value in each entity, written like `columns`; `stash.static` holds them,
            `(entities, ...)`. Values are compared as they are stored; a missing value is equal only to another one. Or
            a frame or table in memory with one row for each entity, `static=stores`, which has the entity columns under
            their names, and from which all others are taken; or `static=(stores, columns)`, which takes these. A
            missing row is an error; a row of an unknown entity is not used, with a warning.
        dtype: cast the floating columns to this floating type, static ones too; `None` keeps the source's.
        filter: the rows to load, as an expression, `pyarrow.compute.field("year") >= 2020`, or as a list of tuples that
            must all hold, `[("year", ">=", 2020), ("station", "in", ["A", "B"])]`, or as several such lists, of which
            one must hold. A comparison with a null is not true. Files whose paths exclude all rows are not decoded, nor
            are row groups whose statistics do. Of the others the columns of the filter are read first.
        schema: the types of columns of CSV files, as of pyarrow, polars or torch, or as text, `{"load": "float64"}`; or
            how a time is written, `{"date": "%d.%m.%Y %H:%M"}`. The others are as pyarrow infers them from the first MB
            of the first file that has rows, and a value that is of another type later is an error.
        layout: where the rows of a series are; `None`: each row has one time of one series.
            `"lists"`: each row is a series, whose values are lists of one length, as in the files of GluonTS, Chronos,
            uni2ts and Hugging Face. `time=` names a list of times, or is `ts.regular(start, every)`. A list of lists is
            variates x time, and becomes a column `(rows, variates)`. Lists that `static=` names stay whole, one for
            each series; other values are repeated. A null list stands for missing values; a row whose lists are all
            empty or null has no rows. Rows of one entity are parts of one series. Without `entity=` each row is a
            series, named by its number.
            `"wide"`: each of several columns is a series, and its name, under the new name `entity=`, is the entity.
            One entry of `columns=` says which they are, as a list of names or a polars selector:
            `{"y": pl.exclude("date")}`; other entries are columns that all series share. `columns=None` takes all
            columns that nothing else names, as "value".
        shard: `(k, n)` loads only the entities of shard k of n, by `ts.cluster.shard_of`. The entity columns are read
            first, and then only the row groups with such entities. For many shards, `ts.cluster.shard` reads the source
            once.
        filesystem: where the paths are: a `pyarrow.fs.FileSystem` or an fsspec file system; `None` takes this machine,
            and for a URL what pyarrow or fsspec have for its scheme.
        share: a label for a copy that all processes of this user attach; `True` makes one of the source's name.
            Changed files, other data or other arguments are another copy under the same label.
        file: a path for a stash on disk, such as "weather.safetensors". It appears when it is whole and on disk. A file
            that the same load has made is opened as it is; of several processes one writes and the others wait.
        overwrite: with `file=`, replace a file that something else has made, when the new one is whole. Without it such
            a file is an error.
        timeout: with `share=` or `file=`, seconds to wait for another process that loads; `None` waits until it
            is done.
        progress: show a bar, in rows and MB/s; `None` shows it when the output is a terminal or a notebook.

    Returns:
        A `Stash` whose rows are grouped by entity, in order of first appearance, and ordered by time. A load that is
        interrupted (Ctrl-C) frees what it has taken. A `UserWarning` is given if no value of a given vocabulary occurs
        in its column, or if nine of ten distinct values of a text column read as numbers.

    Raises:
        SourceError: no file, an unreadable one, or files that differ. ColumnError: no such column. SchemaError: a type
        or name that a stash cannot hold, or an expression that depends on other rows. DataError: a null, a lossy cast,
        a duplicate time, an expression that fails in a row or entity, or a static column that is not constant in an
        entity. ValueError: an expression without a column, with several outputs, or with Python functions and `share=`
        or `file=`; `timeout=` without one of these, `overwrite=` without `file=`, or `share=` and `file=` together.
        RuntimeError: an expression in a forked process whose parent has used polars.
        NoMemoryError: the columns do not fit into free memory, or with `file=` onto the disk.
        SegmentError: the directory for shared segments is not this user's alone, or `file=` cannot be written or has
        another stash. TimeoutError: see `timeout`. A process
        that waited for another one's load gets the error of that load.

    Example:
        >>> import tensorstash as ts
        >>> data = {"station": ["B", "A", "B"], "hour": [2, 1, 1], "temp": [0.5, None, 0.25]}
        >>> stash = ts.load(data, ["temp"], entity="station", time="hour")
        >>> stash.entities, stash.offsets.tolist(), stash["temp"].tolist()
        (['B', 'A'], [0, 2, 3], [0.25, 0.5, nan])
        >>> data["region"] = ["SE", "NO", "SE"]
        >>> stash = ts.load(data, ["temp"], entity="station", time="hour", static=["region"])
        >>> stash.static, stash.vocabulary("region")
        ({'region': tensor([0, 1], dtype=torch.int32)}, ['SE', 'NO'])
        >>> import polars as pl
        >>> ts.load(data, {"x": pl.col("temp") * 4, "log": pl.col("hour").log(2)}, entity="station")["log"]
        tensor([1., 0., 0.], dtype=torch.float64)
    """
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
        shard=shard,
    )
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress= is True, False or None; got {progress!r}.")
    path = _check_targets(share, file, overwrite, timeout)
    if path is not None:
        stash, noted = _load_once(
            request, progress, lambda key, build: obtain_file(Target(path, key, overwrite), build, timeout)
        )
    elif share is None or share is False:
        stash, noted = _load_private(request, progress)
    else:
        label = check_share(share, request.source)
        stash, noted = _load_once(request, progress, lambda key, build: obtain(Name(label, key[:16]), build, timeout))
    for warning in (*_warnings_of_vocabularies(stash), *noted):
        warnings.warn(warning, UserWarning, stacklevel=2)
    return stash


def _check_targets(share: object, file: object, overwrite: bool, timeout: object) -> str | None:
    """Refuse arguments that contradict each other; the path of `file=`."""
    shared = share is not None and share is not False
    if file is None and overwrite:
        raise ValueError("overwrite= replaces the file of file=, so it needs file=. Leave it out.")
    if file is not None and shared:
        raise ValueError("A stash is shared memory or a file; got share= and file=. Leave one out.")
    if file is None and not shared and timeout is not None:
        raise ValueError(
            "timeout= limits the wait for the load of another process, so it needs share= or file=. Leave it out."
        )
    if timeout is not None and (
        not (is_integer(timeout) or isinstance(timeout, float)) or not cast("float", timeout) >= 0
    ):
        raise ValueError(f"timeout= is a number of seconds, at least 0; got {timeout!r}.")
    if file is None:
        return None
    if not isinstance(file, (str, os.PathLike)) or not os.fspath(file):
        raise TypeError(f"file= is a path; got {file!r}.")
    return os.path.realpath(os.fsdecode(file))


def _warnings_of_vocabularies(stash: Stash) -> Iterator[str]:
    """A warning if there are columns with values of which none is in the given vocabulary."""
    if strangers := _without_known(stash):
        yield (
            f"No value of {' and '.join(map(repr, strangers))} is in the given vocabulary: all have the code of "
            "unknown values. Compare the spelling with the source."
        )


def _without_known(stash: Stash) -> list[str]:
    """The columns with values of which none is in the given vocabulary."""
    found = []
    for name, tensor in (*stash.items(), *stash.static.items()):
        about = stash.about(name)
        if about.unknown and about.unknown + about.missing == len(tensor):
            found.append(name)
    return found


def _load_private(request: Request, progress: bool | None) -> tuple[Stash, tuple[str, ...]]:
    """The stash, and what its user is warned of."""
    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    surveyed = survey(request, files, progress)
    check_columns(surveyed.planned.nbytes, surveyed.planned.source, memory_limits())
    segment = draft(surveyed.planned, None)
    written = ingest(surveyed, segment, progress, lambda _: None)
    check_unchanged(request.source, request.filesystem, before)
    stash = Stash(segment.finish(written.header))
    stash._segment.populate()
    return stash, written.warnings


def _load_once(
    request: Request, progress: bool | None, get: Callable[[str, Build], Segment]
) -> tuple[Stash, tuple[str, ...]]:
    """The stash that `get` finds by its key, for which only the stamps of files are read, or builds.

    What its user is warned of is as for a private one; nothing, if it was found.
    """
    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    in_memory = survey(request, None, progress) if files is None else None
    noted: list[str] = []
    data: object = before if in_memory is None else contents(in_memory.scanned, in_memory.planned.read)
    if request.table is not None:
        table = survey(request.table, None, progress)
        data = [data, contents(table.scanned, table.planned.read)]
    own_key = key(data, argument_keys(request))

    def build(target: UnpublishedFile, report: Callable[[float], None]) -> None:
        surveyed = in_memory or survey(request, files, progress)
        check_columns(surveyed.planned.nbytes, surveyed.planned.source, target.limits(), target.on_disk)
        segment = draft(surveyed.planned, target.fd, target.on_disk)
        written = ingest(surveyed, segment, progress, report)
        segment.seal(written.header, own_key)
        noted.extend(written.warnings)
        check_unchanged(request.source, request.filesystem, before)

    return Stash(get(own_key, build)), tuple(noted)
