"""`ts.plan` and `ts.load`: what a load will hold, and the load itself, private to this process or shared."""

import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tensorstash.columns.codec import Unknown
from tensorstash.columns.spec import Columns
from tensorstash.common.checks import flag_or_none
from tensorstash.common.keywords import suggests_keywords
from tensorstash.errors import TensorstashError
from tensorstash.ingest.build import obtain_stash, target_of
from tensorstash.ingest.found import Found
from tensorstash.ingest.request import Duplicates, Known, Like, Request, Static, parse_request
from tensorstash.stash.stash import Stash

if TYPE_CHECKING:
    from tensorstash.columns.column import Column
    from tensorstash.ingest.survey import Planned


class Plan:
    """What a load will hold, and what it will cost: `print` it, and `load` it. `ts.plan` makes one.

    A plan looks at its source once, when it is printed, one of its properties is read, or a load needs it. Then schemas
    and footers are read, and no values. The exceptions are one column of Arrow files, because only their batches have
    the number of rows; the first batch of lists, for their length; CSV files and streams; the columns of a filter; and
    with `shard=` the entity columns.

    When printed, a plan shows the type of each column in the source; its nulls, minimum and maximum, if Parquet files
    have statistics of them; the number of row groups that remain after a filter; and notes: differences between the
    files, and reasons for which a load will fail.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._found: Found | None = None  # `None` until the source was looked at

    @property
    def source(self) -> str:
        """What the rows come from."""
        return self.planned.source

    @property
    def rows(self) -> int:
        """Rows of the stash."""
        return self.planned.rows

    @property
    def nbytes(self) -> int:
        """Bytes of the stash, without static columns: only a load counts the entities."""
        return self.planned.nbytes

    @property
    def free(self) -> int:
        """Bytes of memory that were free when the source was surveyed."""
        return self.planned.free

    @property
    def page_tables(self) -> int:
        """Bytes of page tables in each process that maps the stash, in addition to the memory itself."""
        return self.planned.page_tables

    @property
    def columns(self) -> "tuple[Column, ...]":
        """The columns with a value per row."""
        return self.planned.columns

    @property
    def static(self) -> "tuple[Column, ...]":
        """The columns of the source with a value per entity."""
        return self.planned.static

    @property
    def entity(self) -> "Column | None":
        """The entity, if one was named."""
        return self.planned.entity

    @property
    def time(self) -> "Column | None":
        """The time, if it was named."""
        return self.planned.time

    @property
    def known(self) -> "Column | None":
        """When each row became known, if that was named."""
        return self.planned.known

    @property
    def skipped(self) -> tuple[str, ...]:
        """Source columns that are never decoded."""
        return self.planned.skipped

    @property
    def notes(self) -> tuple[str, ...]:
        """Differences between files that were unified, and reasons for which a load will fail."""
        return self.planned.notes

    @cached_property
    def planned(self) -> "Planned":
        """All that was found in the source. A wrong column is an error here."""
        from tensorstash.ingest.survey import to_show

        found = Found(self._request)
        planned = to_show(found.survey(None))
        self._found = found
        return planned

    @suggests_keywords
    def load(
        self,
        *,
        share: str | bool | None = None,
        file: str | os.PathLike[str] | None = None,
        version: str | None = None,
        overwrite: bool = False,
        timeout: float | None = None,
        progress: bool | None = None,
    ) -> Stash:
        """Load what was planned, or attach it. Arguments, errors and warnings are those of `ts.load`.

        If the source has changed since the plan looked at it, that is a `SourceError`.

        Example:
            >>> import tensorstash as ts
            >>> plan = ts.plan({"y": [1.0, 2.0]}, ["y"])
            >>> plan.nbytes, plan.load()["y"].tolist()
            (4096, [1.0, 2.0])
        """
        return self._load(
            share=share, file=file, version=version, overwrite=overwrite, timeout=timeout, progress=progress
        )

    def _load(self, *, share: Any, file: Any, version: Any, overwrite: bool, timeout: Any, progress: Any) -> Stash:
        """As `load`; warnings name the line that calls the function that calls this."""
        progress = flag_or_none(progress, "progress")
        target = target_of(self._request, share, file, version, overwrite, timeout)
        try:
            found = Found(self._request) if self._found is None else self._found.again(progress)
            stash, notes = obtain_stash(found, target, progress)
        except TensorstashError as error:
            # our frames, most of them of threads, say nothing that its message and its cause do not
            raise error.with_traceback(None)  # noqa: B904  the cause that it has stays
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=4)
        return stash

    def _repr_html_(self) -> str:
        return self.planned._repr_html_()

    def __repr__(self) -> str:
        return repr(self.planned)


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
) -> Plan:
    """Plan what `ts.load` with the same arguments will hold: rows, MB per column, free memory, skipped columns.

    `print` the plan to see it, and `plan.load()` to load it. The arguments are those of `ts.load` that decide what a
    stash holds, with its errors. Nothing is read yet, so a wrong path or column is an error when the plan is printed
    or loaded.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> plan = ts.plan({"t": np.arange(1000), "y": np.zeros(1000), "z": np.zeros(1000)}, ["y"], time="t")
        >>> plan.rows, plan.nbytes, plan.skipped
        (1000, 16384, ('z',))
        >>> plan.load().rows
        1000
    """
    return Plan(
        parse_request(
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
        )
    )


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
    load needs memory for decoding, and 24 bytes per row if rows are not grouped by entity and ordered by time; with
    `known`, 8 bytes for each row of the largest entity, to count its times.

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
        known: when each row became known, for a table of forecasts or of figures that are revised: a timestamp, date or
            integer column, or a polars expression such as `pl.col("issued") + pl.duration(hours=5)`, because a run is
            out hours after it is issued. It is a second time, `stash.known`, int64, with a unit of its own; text is
            read as in `time`. Rows of one entity and time are then versions, each a whole row, and of two versions
            that became known at one time, one is an error. Such a stash is a table of other windows, or is looked at
            with `at=`.
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
        like: a stash, or the path of a saved one, whose entities and codes of text keep their numbers, as for a model
            that has embeddings of them; new ones follow in ascending order. A column's own vocabulary takes precedence.
            `columns`, `entity`, `time`, `known` and `static` that are left out are those of `like`, with their types
            and expressions; such static columns are not read, but have the values of `like`. So is the floating type of
            a column that neither `dtype=` nor `ts.column` chooses. Entities without rows become series without rows,
            and values that only rows of the source could give are missing: NaN, code -1 or `fill=`, or else an error.
            With the times of a stash without rows, windows take the step of time that it keeps.
        unknown: with `like`, what becomes of entities and texts that it lacks: `"keep"` gives them numbers behind the
            others; `"error"` raises a `DataError`; `"drop"` leaves the rows of such entities out and takes such texts
            as missing, because a row left out would be a gap, with a warning.
        duplicates: `"error"` refuses a time that an entity has in several rows, which in regular series is a mistake.
            `"keep"` is for events: rows of one time stay in the order of the source. Their windows need
            `gaps="ignore"`, or spans in time. With `known`, no row then replaces another of its time, and rows that
            also became known at one time stay in the order of the source.
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
        A `Stash` whose rows are grouped by entity, the entities in ascending order, and ordered by time. With `known`
        they are ordered by known time and then by time, if entities have at most as many known times as times, else,
        and always with `duplicates="keep"`, by time and then by known time; `stash.is_by_known` says which. Ctrl-C
        frees all memory of the load. A `UserWarning` is given if no value of a given vocabulary occurs in its column,
        or if most distinct values of a text column read as numbers.

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
    planned = plan(
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
    )
    return planned._load(
        share=share, file=file, version=version, overwrite=overwrite, timeout=timeout, progress=progress
    )
