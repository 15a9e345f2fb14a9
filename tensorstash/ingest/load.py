"""`ts.plan` and `ts.load`: what a load will hold, and the load itself, private to this process or shared."""

import os
from collections.abc import Sequence
from typing import Any, get_args

import torch

from tensorstash.columns.codec import Unknown
from tensorstash.columns.resolve import entity_columns
from tensorstash.columns.sharding import check_shard
from tensorstash.columns.spec import Columns
from tensorstash.common.calendar import GivenStep, is_calendar
from tensorstash.common.checks import one_of
from tensorstash.common.frequency import as_text
from tensorstash.common.keywords import suggests_keywords
from tensorstash.ingest.like import check_like, columns_like, keys_like
from tensorstash.ingest.plan import Plan
from tensorstash.ingest.request import (
    Duplicates,
    Known,
    Like,
    Request,
    Static,
    StepOrTimes,
    check_floating,
    check_time,
    parse_filter,
    with_columns,
)
from tensorstash.stash.stash import Stash
from tensorstash.stash.steps import own_calendar


@suggests_keywords
def plan(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    known: Known | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    shard: tuple[int, int] | None = None,
    like: Like | None = None,
    unknown: Unknown = "keep",
    duplicates: Duplicates = "error",
    filesystem: Any = None,
    frequency: GivenStep | None = None,
) -> Plan:
    """Plan what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    `print` the plan to see it, and `plan.load()` to load it. The arguments are those of `ts.load` that decide what a
    stash holds, with its errors. Nothing is read yet, so a wrong path or column is an error when the plan is printed
    or loaded.

    Args:
        source: files, a glob, a directory, a URL or a list of them; a frame, a table, a data set, a query, or a mapping
            of arrays.
        columns: a list of source names, or a mapping from your names to source names, lists of them, `ts.column` and
            the like, or polars expressions. `None`: all columns that entity, time and static do not name.
        entity: the column that identifies the series of each row, or a list of columns. Without it all rows are one
            series.
        time: the column that orders the rows of a series. Without it rows keep their order.
        known: when each row became known: a column of times, or an expression. Without it each time has one row.
        static: columns with one value in each entity, or a frame with a row for each entity, or a pair of such a frame
            and its columns. By default none.
        dtype: the floating type of all floating columns; `None` keeps the source's.
        filter: the rows to load: tuples such as `("year", ">=", 2020)`, or an expression. `None`: all.
        shard: `(k, n)` loads only the entities of shard k of n. `None`: all.
        like: a stash, or the path of a saved one, whose entities and codes of text keep their numbers, and which
            supplies the columns and keys that are left out. By default numbers and codes follow from the rows.
        unknown: with `like`, entities and texts that it lacks get new numbers (`"keep"`), are a `DataError`
            (`"error"`), or are left out, with a warning (`"drop"`).
        duplicates: a time that an entity has in several rows is refused (`"error"`), or kept, for events (`"keep"`).
        filesystem: where the paths are, of pyarrow or fsspec; `None`: this machine, or what a URL names.
        frequency: the step of time, such as "15m", or a calendar, all times that exist. By default windows find it.

    Returns:
        A `Plan`.

    Raises:
        ValueError: arguments that contradict each other, or a text that is none of those above. TypeError: an argument
        of another type.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> plan = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> plan.rows, plan.nbytes, plan.skipped
        (1000, 16384, ('z',))
        >>> plan.load().rows
        1000
    """
    other = check_like(like)
    one_of(unknown, get_args(Unknown), "unknown")
    if other is None and unknown != "keep":
        raise ValueError(f"unknown={unknown!r} is about what like= lacks, and there is no like=. Leave it out.")
    of_like = frozenset(
        name for name, given in (("columns", columns), ("time", time)) if other is not None and given is None
    )
    entity, time, known = keys_like(other, entity, time, known)
    named = columns_like(other, dtype) if other is not None and columns is None else columns
    request = Request(
        source=source,
        filesystem=filesystem,
        entity=entity if isinstance(entity, str) else entity_columns(entity) or None,
        time=check_time(time),
        dtype=check_floating(dtype),
        duplicates=one_of(duplicates, get_args(Duplicates), "duplicates") == "keep",
        filter=parse_filter(filter),
        shard=check_shard(shard),
        like=other,
        of_like=of_like,
        frequency=_step(frequency, time, other if "time" in of_like else None),
        unknown=unknown,
    )
    return Plan(with_columns(request, named, static, known))


def _step(given: GivenStep | None, time: str | None, like: Stash | None) -> StepOrTimes:
    """The step of time, or the times that exist: given, or those of the stash whose times are taken over."""
    if given is None:
        return None if like is None else own_calendar(like) or like.info.frequency
    if time is None:
        raise ValueError("frequency= is about the times of the rows, and there is no time=. Name the time column.")
    if not is_calendar(given):
        return as_text(given)
    from tensorstash.sources.given_times import times_of  # here, because most loads do without it

    return times_of(given)


@suggests_keywords
def load(
    source: Any,
    columns: Columns | None = None,
    *,
    entity: str | Sequence[str] | None = None,
    time: str | None = None,
    known: Known | None = None,
    static: Static | None = None,
    dtype: torch.dtype | None = None,
    filter: Any = None,  # noqa: A002  as in pyarrow
    shard: tuple[int, int] | None = None,
    like: Like | None = None,
    unknown: Unknown = "keep",
    duplicates: Duplicates = "error",
    filesystem: Any = None,
    frequency: GivenStep | None = None,
    share: str | bool | None = None,
    file: str | os.PathLike[str] | None = None,
    version: str | None = None,
    overwrite: bool = False,
    timeout: float | None = None,
    progress: bool | None = None,
) -> Stash:
    """Load the named columns once into memory, or into a file, as a dict of tensors.

    With `share=` there is one copy per machine: the first process that makes a call loads it, and all that make the
    same call attach it (`docs/guide/sharing.md`). With `file=` the columns are written to a file, which may be larger
    than memory, and mapped (`docs/guide/on-disk.md`).

    Args:
        source: files of Parquet, Arrow, ORC or CSV: a path, a glob, a directory, a URL such as
            `s3://bucket/weather/*.parquet`, or a list of them; a polars or pandas frame; a Table, RecordBatch or
            Dataset of pyarrow; a Hugging Face Dataset; a mapping of arrays or tensors. Also what is read once, into an
            unnamed file in `TMPDIR`: a polars LazyFrame, a reader or Scanner of pyarrow, a Ray Dataset, and whatever
            has `__arrow_c_stream__`. A damaged value of a Parquet file is found only if the file has page checksums,
            `write_page_checksum=True` of pyarrow. See `docs/guide/sources.md`.
        columns: a list of source names, or a mapping from your names to a source name, a list of names (packed into one
            `(rows, k)` column), a `ts.column`, `ts.hashed`, `ts.is_valid` or `ts.calendar`, or a polars expression that
            computes each value from its own row. A field of a struct has a dotted path, `"wind.speed"`. Only these are
            decoded. `None`: all columns that entity, time and static do not name. See `docs/guide/columns.md`.
        entity: the text or integer column that identifies the series of each row, or a list of such columns: then an
            entity is a tuple of their values. Without it all rows are one series.
        time: the timestamp, date or integer column that orders the rows of a series, kept as int64. Text in ISO 8601
            is read as timestamps in microseconds, or in nanoseconds if the first one has more than six digits behind
            the point; "2021-05", "2021Q3" and "2016W01" are the days on which they begin.
            Without it rows keep their order, and a warning says so if a column that is not named elsewhere holds times.
            Local times without a zone repeat an hour when clocks are set back: first give them their zone, with
            `dt.replace_time_zone` of polars.
        known: when each row became known, for a table of forecasts or of revised figures: a column like that of `time`,
            or an expression such as `pl.col("issued") + pl.duration(hours=5)`. Rows of one entity and time are then
            versions. By default each time has one row. See `docs/guide/stash.md`.
        static: columns that have one value in each entity, written like `columns`; `stash.static` holds them,
            `(entities, ...)`. Or a frame or table in memory with the entity columns and one row for each entity,
            `static=stores`, or `static=(stores, columns)` for some of its columns. By default there are none.
        dtype: cast the floating columns to this floating type, static ones too; `None` keeps the source's.
        filter: the rows to load, as a list of tuples that must all hold, `[("year", ">=", 2020), ("station", "in",
            ["A", "B"])]`, as several such lists, of which one must hold, or as an expression of pyarrow or polars. A
            comparison with a null is not true, `not in` included. Row groups whose statistics exclude all rows are not
            decoded, unless the filter is of polars. `None`: all rows.
        shard: `(k, n)` loads only the entities of shard k of n, by `ts.cluster.shard_of`; `None` loads all. For many
            shards, `ts.cluster.shard` reads the source once.
        like: a stash, or the path of a saved one, whose entities and codes of text keep their numbers; new ones follow
            in ascending order. It also supplies the `columns`, `entity`, `time`, `known` and `static` that are left
            out, with their types and expressions, and without rows the step of time that it keeps. A static column is
            read from the source; entities without rows keep the value that `like` has, and so do all its entities if
            the source lacks the column, has another kind of values in it, or if an expression made it. By default
            entities and texts are numbered in ascending order.
        unknown: with `like`, what becomes of entities and texts that it lacks: `"keep"` gives them numbers behind the
            others; `"error"` raises a `DataError`; `"drop"` leaves the rows of such entities out and takes such texts
            as missing, with a warning.
        duplicates: `"error"` refuses a time that an entity has in several rows. `"keep"` is for events: rows of one
            time stay in the order of the source. Their windows need `gaps="ignore"`, or spans in time.
        frequency: the step of time, as polars writes it ("15m", "1h", "1mo", "1bd"), a `timedelta`, or an integer for
            integer times; or a calendar, a sequence of all times that exist and those to come, ascending and of the
            type of the time column. The stash keeps it for its windows, and a row at a time that the calendar lacks is
            refused. By default windows take the most common step.
        filesystem: where the paths are: a `pyarrow.fs.FileSystem` or an fsspec file system; `None`: this machine, or
            for a URL what pyarrow or fsspec have for its scheme.
        share: a label for a copy that all processes of this user attach; `True` makes one of the source's name. By
            default the memory is private to this process.
        file: a path for a stash on disk, such as "weather.safetensors". It appears once it is complete. A file that the
            same load has made is opened as it is. By default the columns are loaded into memory.
        version: with `share=` or `file=`, a text that names the rows of a source that is not files, so that later
            processes need not read and hash them. If rows change and the version does not, you silently get the old
            rows. Without it such rows are hashed.
        overwrite: with `file=`, replace a file that another load or program made, once the new one is complete. Without
            it such a file is an error.
        timeout: with `share=` or `file=`, seconds to wait for another process that loads; `None` waits until it
            is done.
        progress: show a bar, in rows and MB/s; `None` shows it when the output is a terminal or a notebook.

    Returns:
        A `Stash` whose rows are grouped by entity, the entities in ascending order, and ordered by time; for the order
        with `known` see `stash.is_by_known`. Ctrl-C frees all memory of the load. A `UserWarning` is given if no value
        of a given vocabulary occurs in its column, if most distinct values of a text column read as numbers, or if a
        column of times is not used and there is no `time=`.

    Raises:
        SourceError: no file, an unreadable one, or files that differ. ColumnError: no such column. SchemaError: a type
        or name that a stash cannot hold, or an expression that depends on other rows. DataError: a null, a lossy cast,
        a duplicate time or one that is not in the calendar, an expression that fails in a row, or a static column that
        is not constant in an entity.
        ValueError: arguments that contradict each other, or an expression without a column, with several outputs, or
        with Python functions and `share=` or `file=`. RuntimeError: an expression in a forked process whose parent has
        used polars. NoMemoryError: the columns do not fit into memory, or with `file=` onto the disk. SegmentError: the
        directory for shared segments is not this user's alone, or `file=` cannot be written or has another stash.
        TimeoutError: see `timeout`.

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
    return plan(
        source,
        columns,
        entity=entity,
        time=time,
        known=known,
        static=static,
        dtype=dtype,
        filter=filter,
        shard=shard,
        like=like,
        unknown=unknown,
        duplicates=duplicates,
        filesystem=filesystem,
        frequency=frequency,
    ).load(share=share, file=file, version=version, overwrite=overwrite, timeout=timeout, progress=progress)
