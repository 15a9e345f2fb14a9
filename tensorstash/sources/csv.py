"""Scans of CSV files: polars reads them, and checks raise where polars would silently misread."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensorstash.columns.number_texts import number_share
from tensorstash.common.forks import check_pool
from tensorstash.common.progress import Bar, bytes_bar
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.evaluate import first_line
from tensorstash.sources.file import File, here
from tensorstash.sources.filter import Filter
from tensorstash.sources.formats import TABS
from tensorstash.sources.hive_keys import agreeing, constant, kept_files, key_types
from tensorstash.sources.iso_times import as_times, iso_type
from tensorstash.sources.scan import Scan, Wanted, check_unique
from tensorstash.sources.spool import Spool
from tensorstash.sources.streams import arrow_schema, collected, kept_type, spooled_parts

if TYPE_CHECKING:
    import polars as pl

_MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"]
_JUDGED = 10_000  # rows from which types are inferred
_COPIED = 1 << 22  # bytes copied at a time
_MEASURED = 1 << 20  # bytes whose lines are counted


@dataclass(frozen=True, slots=True)
class _Csv:
    """A CSV file with a checked header, on this machine."""

    file: File
    path: str
    names: tuple[str, ...]
    separator: str
    copy: Spool | None  # keeps `path` alive, if the file is compressed or remote

    def frame(self, types: Mapping[str, Any]) -> "pl.LazyFrame":
        """The rows, with `types` in place of the inferred ones."""
        import polars as pl

        return pl.scan_csv(
            self.path,
            separator=self.separator,
            schema_overrides={name: types[name] for name in self.names if name in types},
            null_values=_MISSING,
            infer_schema_length=_JUDGED,
            glob=False,
        )

    def uneven_line(self) -> str | None:
        """The first line with more or fewer values than the header, for messages."""
        with open(self.path, newline="", encoding="utf-8-sig", errors="replace") as lines:
            records = csv.reader(lines, delimiter=self.separator)
            with suppress(csv.Error):  # the reader refuses very long values
                for record in records:
                    if len(record) != len(self.names) and (record or len(self.names) > 1) and records.line_num > 1:
                        return f"line {records.line_num:,} has {len(record)} of {len(self.names)} values"
        return None

    def uneven(self, line: str) -> SourceError:
        """The error for a line with more or fewer values than the header."""
        return SourceError(
            f"Each line of a CSV file has a value for each column; {self.file}, {line}. Correct the file, or read it "
            f"with polars: ts.load(pl.scan_csv({str(self.file)!r}, ...), ...)."
        )


def scan_csv(
    files: Sequence[File], label: str, wanted: Wanted, condition: Filter | None, progress: bool | None
) -> Scan:
    """Read the wanted columns into a file on disk. The first file that has rows decides the types."""
    check_pool()
    first, types, sample = _first_rows(files, wanted)
    times = _resolve_texts(first, types, sample)
    keys = {key: arrow for key, arrow in key_types(files).items() if key not in types}
    whole = pa.schema([*arrow_schema(types), *keys.items()])
    if condition is not None and keys:
        files = kept_files(files, keys, whole, condition) or files[:1]
    schema = pa.schema([whole.field(name) for name in wanted.among(whole.names)])
    with bytes_bar("parsing CSV", progress) as bar:
        bar.total = 0 if bar.disable else sum(file.size for file in files)
        opened = (first if file == first.file else _opened(file) for file in files)
        parts = (
            (str(table.file), _counted(table, agreeing(_batches(table, schema, types), table.file), bar))
            for table in opened
        )
        units = spooled_parts(parts, schema, label)
    kept = pa.schema([field.with_type(kept_type(field.type)) for field in whole])
    return as_times(Scan(label, kept, units, len(units), keys=frozenset(keys)), times)


def _opened(file: File) -> _Csv:
    """Check the header of a file; a compressed or remote file is copied to a file on disk first."""
    with _unreadable(file):
        copy = None if file.system is None and file.path.lower().endswith((".csv", ".tsv")) else _copy(file)
        path = file.path if copy is None else copy.path()
        separator = "\t" if file.path.lower().endswith(TABS) else ","
        with open(path, newline="", encoding="utf-8-sig") as lines:
            names = next((tuple(record) for record in csv.reader(lines, delimiter=separator) if record), None)
    if names is None:
        raise SourceError(f"A CSV file must begin with a line of column names; {file} is empty.")
    check_unique(names, Wanted(None), str(file))
    if len(names) == 1 and (mark := next((mark for mark in ",;\t|" if mark in names[0] and mark != separator), None)):
        raise SourceError(
            f"The ending of {file} stands for values separated by {separator!r}, but its first line has only {mark!r}. "
            f"{_remedy(file, f'separator={mark!r}')}"
        )
    return _Csv(file, path, names, separator, copy)


def _copy(file: File) -> Spool:
    system = file.system or here()
    copy = Spool(str(file), file.size)
    with system.open_input_stream(file.path, compression="detect") as stream:
        while data := stream.read(_COPIED):
            copy.append(data)
    return copy


def _first_rows(files: Sequence[File], wanted: Wanted) -> tuple[_Csv, dict[str, Any], "pl.DataFrame"]:
    """The first file that has rows, the types of its columns, and the first rows of the wanted ones."""
    import polars as pl

    for file in files:
        opened = _opened(file)
        with _unreadable(file, opened):
            inferred = opened.frame({}).collect_schema()
            # Arrow has no integers of 128 bits
            types = {name: pl.Decimal(38, 0) if kind == pl.Int128 else kind for name, kind in inferred.items()}
            sample = opened.frame(types).select(wanted.among(types)).head(_JUDGED).collect()
            _refuse_leading_zeros(opened, [column.name for column in sample if column.dtype.is_integer()])
        if sample.height:
            break
    return opened, types, sample


def _refuse_leading_zeros(first: _Csv, integers: Sequence[str]) -> None:
    """Raise if one of the first integers is written as 007, because '007' and '7' may be different names."""
    import polars as pl

    texts = first.frame(dict.fromkeys(integers, pl.String())).select(integers).head(_JUDGED).collect()
    for column in texts:
        for text in column.filter(column.str.contains(r"^[+-]?0\d"))[:1]:
            remedy = _remedy(first.file, f"schema_overrides={{{column.name!r}: pl.String}}, or pl.Int64 for numbers")
            raise SchemaError(
                f"An integer in a CSV file has no leading zero; {text!r} in column {column.name!r} of {first.file} "
                f"would be {int(text)}. {remedy}"
            )


def _resolve_texts(first: _Csv, types: dict[str, Any], sample: "pl.DataFrame") -> dict[str, pa.DataType]:
    """The Arrow types of text columns that hold times. In `types`, columns without values become floats."""
    import polars as pl

    times = {}
    for column in sample.select(pl.col(pl.String)):
        values = column.drop_nulls().unique(maintain_order=True).to_list()
        if not values:
            types[column.name] = pl.Float64()
        elif (arrow := iso_type(values, "ns")) is not None:
            times[column.name] = arrow
        elif number_share(values) > 0.5:
            floats = pl.Series(values).cast(pl.Float64, strict=False)
            bad = next((value for value, number in zip(values, floats) if number is None), values[0])
            remedy = _remedy(first.file, "decimal_comma=, null_values= or schema_overrides=")
            raise SchemaError(
                f"A column of a CSV file is numbers or text; most values of {column.name!r} in {first.file} read as "
                f"numbers, but {bad!r} does not. {remedy}"
            )
    return times


def _batches(table: _Csv, schema: pa.Schema, types: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a file and its partition keys; raises if a line ends before one of the columns."""
    keys = dict(table.file.keys)
    if missing := [name for name in schema.names if name not in table.names and name not in keys]:
        raise SourceError(
            f"All files of a source need the same columns; {table.file} has no column {missing[0]!r}. Leave the column "
            "out, or write all files with the same columns."
        )
    stored = [name for name in table.names if name in schema.names]
    complete = True
    with _unreadable(table.file, table):
        for batch in collected(table.frame(types).select(stored or table.names[:1])):
            complete = complete and not (stored and batch.column(len(stored) - 1).null_count)
            arrays = [
                batch.column(field.name) if field.name in stored else constant(keys[field.name], field.type, len(batch))
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not complete and _may_have_short_line(table) and (line := table.uneven_line()):
        raise table.uneven(line)


def _counted(table: _Csv, batches: Iterator[pa.RecordBatch], bar: Bar) -> Iterator[pa.RecordBatch]:
    """The batches of a file; the bar advances by its bytes, for each row as many as its first lines have."""
    if bar.disable:
        yield from batches
        return
    with open(table.path, "rb") as file:
        lines = file.read(_MEASURED)
    size, whole = table.file.size, os.path.getsize(table.path)  # the second one without compression
    per_row = size / whole * len(lines) / max(lines.count(b"\n"), 1)
    done = 0.0
    for batch in batches:
        yield batch
        more = min(batch.num_rows * per_row, size - done)
        bar.update(more)
        done += more
    bar.update(size - done)


def _may_have_short_line(table: _Csv) -> bool:
    """Whether a line has fewer separators than the header; a line that ends within quotes is only a part of its row."""
    import polars as pl

    lines = pl.scan_csv(
        table.path,
        has_header=False,
        separator="\x1f",  # which texts do not contain, so that each line is one value
        quote_char=None,
        schema={"line": pl.String},
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        glob=False,
    )
    separators = pl.col("line").str.count_matches(table.separator, literal=True).fill_null(0)
    return bool(lines.select((separators < len(table.names) - 1).any()).collect(engine="streaming").item())


@contextmanager
def _unreadable(file: File, opened: _Csv | None = None) -> Iterator[None]:
    """Re-raise errors of reading a file with its name and, if known, the line."""
    import polars as pl

    try:
        yield
    except SourceError:
        raise
    except (UnicodeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = first_line(error)
        if "utf-8" in why:
            raise SourceError(
                f"A CSV file must be text in UTF-8; {file} is not: {why}. Write it again, or read it with polars: "
                f"ts.load(pl.read_csv({str(file)!r}, encoding=...), ...)."
            ) from error
        if "more fields" in why and opened is not None and (line := opened.uneven_line()):
            raise opened.uneven(line) from error
        raise SourceError(
            f"{file} cannot be read with the types of its first {_JUDGED:,} rows: {why}. "
            f"{_remedy(file, 'null_values= or schema_overrides=')}"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file} is not a readable CSV file: {error}") from error


def _remedy(file: File, arguments: str) -> str:
    return f"Say how to read it, with {arguments}: ts.load(pl.scan_csv({str(file)!r}, ...), ...)."
