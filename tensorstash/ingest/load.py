"""`ts.load`: a source as a stash, of this process alone or one for the machine."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tensorstash.columns.spec import Columns
from tensorstash.ingest.key import argument_keys, check_share, check_unchanged, contents, key
from tensorstash.ingest.memory import check_columns
from tensorstash.ingest.plan import survey
from tensorstash.ingest.request import Request, parse_request
from tensorstash.ingest.write import draft, ingest
from tensorstash.segments.directory import Name
from tensorstash.segments.limits import memory_limits
from tensorstash.segments.publish import obtain
from tensorstash.segments.unpublished import Unpublished
from tensorstash.sources.locate import find
from tensorstash.sources.stamps import stamps
from tensorstash.stash.stash import Stash


def load(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    static: Columns | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    schema: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    share: str | bool | None = None,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Stash:
    """Load the named columns once into memory, as a dict of tensors.

    With `share=` they are there once per machine: of all processes that make the same call, now or later, the first
    loads and the others attach what it has loaded. It stays until `ts.shared.remove(label)`, `ts.shared.prune` or a
    reboot.

    Args:
        source: Parquet, CSV (`.csv`, `.csv.gz`, `.csv.zst`), or Arrow IPC files or streams, here or in any file system:
            a path, a glob, a directory, a URL such as `s3://bucket/weather/*.parquet`, or a list of them; a polars or
            pandas frame; a pyarrow Table, RecordBatch or Dataset; a Hugging Face Dataset; a mapping of arrays or
            tensors. The files of one source need the same columns; integers, floats and timestamps of different widths
            and units are widened to the widest. Of a directory or glob, parts of paths such as `year=2024` are columns.
            Also a polars LazyFrame, a pyarrow RecordBatchReader or Scanner, and whatever has `__arrow_c_stream__`, as
            relations of DuckDB: these are read to their end once, never whole in memory, and what is wanted of them
            lies in an unnamed file in the temporary directory (TMPDIR) during the load.
        columns: a list of source names, or a mapping from your names to a source name, a list of names (packed into one
            `(rows, k)` column), a `ts.column`, `ts.hashed`, `ts.is_valid` or `ts.calendar`. Only these are decoded.
            `None`: all but entity, time and static ones. A polars expression stands wherever a source name does, and is
            computed while the source is read: each value from its own row, whose other columns are read and not kept.
            In it, text is a String, bfloat16 a Float32, and integers overflow as polars has it.
        entity: the text or integer column that tells the series apart, or a list of them: then an entity is a tuple of
            their values. Without it all rows are one series.
        time: the timestamp, date or integer column that orders the rows of a series, kept as int64. Text is taken if
            it is in ISO 8601, as timestamps in microseconds.
        static: columns that have one value in each entity, in the forms of `columns`; `stash.static` holds them,
            `(entities, ...)`. Values are compared as they are stored: a missing value is one of its own.
        dtype: cast the floating columns to this floating type, static ones too; `None` keeps the source's.
        filter: the rows to load, as an expression, `pyarrow.compute.field("year") >= 2020`, or as tuples,
            `[("year", ">=", 2020), ("station", "in", ["A", "B"])]`, all of which must hold; of several such lists one
            must. A comparison with a null is not true. Files whose paths, and row groups whose statistics exclude all
            rows are not decoded; of the others the columns of the filter are read first.
        schema: the types of columns of CSV files, as of pyarrow, polars or torch, or as text, `{"load": "float64"}`; or
            how a time is written, `{"date": "%d.%m.%Y %H:%M"}`. The others are as pyarrow infers them from the first MB
            of the first file, and a value that is of another type later is an error.
        filesystem: where the paths are: a `pyarrow.fs.FileSystem` or an fsspec file system; `None` takes this machine,
            and for a URL what pyarrow or fsspec have for its scheme.
        share: a label for a copy that all processes of this user attach; `True` makes one of the source's name.
            Changed files, other data or other arguments are another copy under the same label.
        timeout: with `share=`, seconds to wait for another process that loads; `None` waits until it is done.
        progress: show a bar, in rows and MB/s; `None` shows it when the output is a terminal or a notebook.

    Returns:
        A `Stash` whose rows are grouped by entity, in order of first appearance, and ordered by time. A load that is
        interrupted (Ctrl-C) frees what it has taken. A `UserWarning` tells of a vocabulary of which no value occurs.

    Raises:
        SourceError: no file, an unreadable one, or files that differ. ColumnError: no such column. SchemaError: a type
        or name that a stash cannot hold, or an expression that depends on other rows. DataError: a null, a lossy cast,
        a duplicate time, an expression that fails in a row, or a static column that is not constant in an entity.
        ValueError: an expression of no column, of several outputs, or with Python functions and `share=`.
        RuntimeError: an expression in a forked process whose parent has used polars.
        NoMemoryError: too large.
        SegmentError: the directory for shared segments is not this user's alone. TimeoutError: see `timeout`. A process
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
    )
    if share is None or share is False:
        stash = _load_private(request, progress)
    else:
        stash = _load_shared(request, share, timeout, progress)
    if strangers := _without_known(stash):
        warnings.warn(
            f"No value of {' and '.join(map(repr, strangers))} is in the vocabulary that was given: all have the code "
            "of unknown ones. Compare the spelling with the source.",
            UserWarning,
            stacklevel=2,
        )
    return stash


def _without_known(stash: Stash) -> list[str]:
    """The columns with values of which none is in the vocabulary that was given."""
    found = []
    for name, tensor in (*stash.items(), *stash.static.items()):
        about = stash.about(name)
        if about.unknown and about.unknown + about.missing == len(tensor):
            found.append(name)
    return found


def _load_private(request: Request, progress: bool | None) -> Stash:
    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    scanned, planned = survey(request, files, progress)
    check_columns(planned.nbytes, planned.source, memory_limits())
    segment = draft(planned, None)
    metadata = ingest(scanned, planned, segment, progress, lambda _: None)
    check_unchanged(request.source, request.filesystem, before)
    stash = Stash(segment.finish(metadata))
    stash._segment.populate()
    return stash


def _load_shared(request: Request, share: str | bool, timeout: float | None, progress: bool | None) -> Stash:
    """Attached if it is there; files are looked at by their stamps alone then."""
    label = check_share(share, request.source)
    files = find(request.source, request.filesystem)
    before = stamps(files or [])
    surveyed = survey(request, None, progress) if files is None else None
    data = before if surveyed is None else contents(surveyed[0], surveyed[1].read)

    def build(target: Unpublished, report: Callable[[float], None]) -> None:
        scanned, planned = surveyed or survey(request, files, progress)
        check_columns(planned.nbytes, planned.source, target.limits())
        segment = draft(planned, target.fd)
        segment.seal(ingest(scanned, planned, segment, progress, report))
        check_unchanged(request.source, request.filesystem, before)

    return Stash(obtain(Name(label, key(data, argument_keys(request))[:16]), build, timeout))
