"""Every source as one scan: a schema, a number of rows, and units of work that yield Arrow record batches."""

import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tensorstash.errors import SchemaError, SourceError
from tensorstash.schema import BFLOAT16, is_text

Read = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]

BATCH_ROWS = 262_144  # rows decoded at a time: large enough for vectorized casts, small enough for the cache
_PARQUET = (".parquet", ".parq", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of rows that is decoded by one thread: a row group, a record batch, a slice of a table."""

    place: str  # for errors: where in the source it is
    start: int  # its first row in the source
    rows: int
    read: Read  # names -> batches that hold exactly these columns


@dataclass(frozen=True, slots=True)
class Scan:
    """A source that is ready to be read: nothing has been decoded yet."""

    label: str
    schema: pa.Schema  # unwanted columns of a frame, which nobody looked at, have the null type
    units: tuple[Unit, ...]

    @property
    def rows(self) -> int:
        """Of all units."""
        return sum(unit.rows for unit in self.units)

    def name_row(self, row: int) -> str:
        """A row for messages: its number in the source, and the piece of a file that holds it."""
        unit = next(unit for unit in self.units if unit.start <= row < unit.start + unit.rows)
        return f"{row:,}" if unit.place == self.label else f"{row:,} ({unit.place})"


def scan(source: Any, wanted: Collection[str] | None) -> Scan:
    """Look at a source: Parquet or Arrow IPC files, a frame, a table, or a mapping of arrays.

    Only the columns `wanted` (`None`: all) of a frame or mapping are converted to Arrow.
    """
    if (paths := files(source)) is not None:
        label = f"{len(source)} paths" if isinstance(source, (list, tuple)) else str(source)
        return _scan_files(paths, label, wanted)
    if isinstance(source, pa.Table):
        return _scan_table(source, source.schema, "the pyarrow Table")
    if isinstance(source, Mapping):
        names = _texts(source, "the mapping")
        table = _table_of_arrays({name: source[name] for name in _among(names, wanted)})
        return _scan_table(table, _with_unwanted(table, names), "the mapping")
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    if kind == "polars.DataFrame":
        kept = source.select(_among(source.columns, wanted)).to_arrow()
        return _scan_table(kept, _with_unwanted(kept, source.columns), "the polars frame")
    if kind == "pandas.DataFrame":
        return _scan_pandas(source, wanted)
    remedy = " Call .collect() first." if kind == "polars.LazyFrame" else ""
    raise TypeError(
        "A source is a path, a glob, a directory, a list of paths, a polars or pandas DataFrame, a pyarrow Table, or "
        f"a mapping of arrays; got {type(source).__module__}.{type(source).__name__}.{remedy}"
    )


def _scan_pandas(frame: Any, wanted: Collection[str] | None) -> Scan:
    """The columns and the named levels of the index."""
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = _texts(frame.columns, "the pandas frame")
    twice = {name for name in _among(names, wanted) if names.count(name) > 1}
    if twice:
        raise SchemaError(f"Column names must be unique; the pandas frame has {sorted(twice)} twice. Rename them.")
    table = pa.Table.from_pandas(frame[_among(names, wanted)], preserve_index=False)
    return _scan_table(table, _with_unwanted(table, names), "the pandas frame")


def _texts(names: Iterable[Any], where: str) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"Column names are texts; {where} has the {type(name).__name__} {name!r}. Rename it.")
    return [*names]


def _among(names: Iterable[str], wanted: Collection[str] | None) -> list[str]:
    return [name for name in names if wanted is None or name in wanted]


# Files


def files(source: Any) -> list[str] | None:
    """The paths of a source in the order of their rows; `None` if it is in memory."""
    if isinstance(source, (str, os.PathLike)):
        return _expand(os.fspath(source))
    if isinstance(source, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in source):
        return sorted({path for item in source for path in _expand(os.fspath(item))})
    return None


def _expand(path: str) -> list[str]:
    if os.path.isdir(path):
        found = sorted(
            str(file) for file in Path(path).rglob("*") if _is_data(file.relative_to(path)) and file.is_file()
        )
        what = f"the directory {path!r} holds no {', '.join(_PARQUET + _ARROW)} file"
    elif os.path.exists(path):
        return [path]
    else:
        found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        what = f"{path!r} matches no file"
    if not found:
        raise SourceError(f"A source needs at least one file; {what} (working directory {os.getcwd()!r}).")
    return found


def _is_data(path: Path) -> bool:
    """Whether a file in a directory is meant: by convention, names with a dot or underscore first are bookkeeping."""
    return path.suffix.lower() in _PARQUET + _ARROW and not any(part.startswith((".", "_")) for part in path.parts)


def _is_arrow(path: str) -> bool:
    return path.lower().endswith(_ARROW)


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a file says of itself."""

    path: str
    schema: pa.Schema
    rows: list[int]  # of each row group or record batch
    parquet: pq.FileMetaData | None  # parsed once, because it may be large

    def pieces(self) -> Iterator[tuple[str, int, Read]]:
        """The place, the rows and the reader of each row group or record batch."""
        for index, rows in enumerate(self.rows):
            place = f"{self.path}, {'row group' if self.parquet else 'record batch'} {index}"
            yield place, rows, partial(_read_parquet if self.parquet else _read_arrow, self, index)


def _scan_files(paths: list[str], label: str, wanted: Collection[str] | None) -> Scan:
    if not paths:
        raise SourceError("A source needs at least one file; the list of paths is empty.")
    footers = [_footer(path, wanted) for path in paths]
    _check_alike(footers, wanted)
    pieces = [piece for footer in footers for piece in footer.pieces()]
    starts = accumulate((rows for _, rows, _ in pieces), initial=0)
    units = (Unit(place, start, rows, read) for (place, rows, read), start in zip(pieces, starts))
    return Scan(label, footers[0].schema, tuple(units))


def _footer(path: str, wanted: Collection[str] | None) -> _Footer:
    try:
        if _is_arrow(path):
            with pa.memory_map(path) as file:
                schema = pa.ipc.open_file(file).schema
                # a batch tells its rows only when it is read: of one column, over a map
                field = next((k for k, name in enumerate(schema.names) if wanted is None or name in wanted), 0)
                reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[field]))
                rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
                return _Footer(path, schema, rows, None)
        with pq.ParquetFile(path, memory_map=False) as file:
            meta = file.metadata
            rows = [meta.row_group(index).num_rows for index in range(meta.num_row_groups)]
            return _Footer(path, file.schema_arrow, rows, meta)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} is not a readable Parquet or Arrow IPC file: {error}") from error


def _read_parquet(footer: _Footer, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(
        footer.path,
        metadata=footer.parquet,
        # one dictionary instead of a string object per row
        read_dictionary=[name for name in names if is_text(footer.schema.field(name).type)],
        # it would hold the whole file
        pre_buffer=False,
        buffer_size=1 << 20,
        page_checksum_verification=True,
    ) as file:
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False)


def _read_arrow(footer: _Footer, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    fields = sorted(footer.schema.get_field_index(name) for name in names)
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.OSFile(footer.path) as file, pa.ipc.open_file(file, options=options) as reader:
        yield reader.get_batch(index).select(list(names))


def _check_alike(footers: list[_Footer], wanted: Collection[str] | None) -> None:
    """All differences in one error, before anything is allocated."""
    first, differences = footers[0], []
    for footer in footers[1:]:
        for field in first.schema:
            if wanted is not None and field.name not in wanted:
                continue
            index = footer.schema.get_field_index(field.name)
            if index < 0:
                differences.append(f"{footer.path} has no column {field.name!r}")
            elif not _same_type(footer.schema.field(index).type, field.type):
                found = footer.schema.field(index).type
                differences.append(f"{footer.path} has {field.name!r} as {found}, not {field.type}")
    if differences:
        shown = "; ".join(differences[:10]) + (f"; and {len(differences) - 10} more" if len(differences) > 10 else "")
        raise SourceError(f"All files of a source need the columns and types of the first, {first.path}: {shown}.")


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    return one == other or (is_text(one) and is_text(other))


# Memory


def _scan_table(table: pa.Table, schema: pa.Schema, label: str) -> Scan:
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    units = (Unit(label, start, batch.num_rows, _selector(batch)) for batch, start in zip(batches, starts))
    return Scan(label, schema, tuple(units))


def _with_unwanted(table: pa.Table, names: Iterable[str]) -> pa.Schema:
    """The schema of a table, and of the columns that nobody wanted and that were not converted."""
    known = set(table.column_names)
    return pa.schema(table.schema.field(name) if name in known else pa.field(name, pa.null()) for name in names)


def _selector(batch: pa.RecordBatch) -> Read:
    return lambda names: [batch.select(list(names))]


def _table_of_arrays(arrays: Mapping[str, Any]) -> pa.Table:
    columns, fields = [], []
    for name, values in arrays.items():
        try:
            array, metadata = _arrow_of(values)
        except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(
                f"A column is an array or a list of values of one type; {name!r} is not: {error}"
            ) from error
        columns.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
    lengths = {field.name: len(array) for field, array in zip(fields, columns)}
    if len(set(lengths.values())) > 1:
        raise SourceError(f"All arrays of a source have one length; got {lengths}.")
    return pa.table(columns, schema=pa.schema(fields))


def _arrow_of(values: Any) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """An array or tensor as Arrow; trailing dimensions become fixed-size lists."""
    metadata = None
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values, metadata = values.view(torch.uint16), BFLOAT16
        values = values.numpy()
    if not isinstance(values, np.ndarray):
        return pa.array(values), metadata
    mask = np.ma.getmaskarray(values).reshape(-1) if isinstance(values, np.ma.MaskedArray) else None
    array = pa.array(np.ascontiguousarray(np.ma.getdata(values)).reshape(-1), mask=mask)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, metadata
