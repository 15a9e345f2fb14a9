"""Errors for CSV files: each names the file and, where it can, the line, and ends with a call that reads the file."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import pyarrow as pa

from tensorstash.columns.names import check_for_polars
from tensorstash.columns.number_texts import number_share
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.csv_file import MISSING, Csv, records
from tensorstash.sources.csv_types import FLOATS, INTEGERS, LARGE_INTEGERS, TEXT, ColumnTexts, MisfitError
from tensorstash.sources.evaluate import first_line
from tensorstash.sources.file import File
from tensorstash.sources.read import Wanted

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)? ?(Z|[+-]\d\d:?(?:\d\d)?)?")
_VALUE = re.compile(r"\d|true|false", re.IGNORECASE)  # what a word for a missing value does not have
_FEW = 5  # most files that a remedy lists
_LINES = 100  # lines that show how numbers are written
_OLD_MAC = r"eol_char='\r'"


def check_header(table: Csv, wanted: Wanted) -> None:
    """Raise if the first line names a wanted column twice, or if lines or values end in another way."""
    names, file = table.names, table.file
    lines = [text for _, text, _ in islice(records(table.numbered, table.separator), _LINES)]
    "".join(lines).encode()  # raises if a line is not UTF-8
    check_for_polars(names)
    if lines[0].endswith("\r"):
        raise SourceError(
            rf"Lines of a CSV file end with \n; those of {file} end with \r. "
            f"Read it with polars: {_call(table, _OLD_MAC)}."
        )
    others = [] if table.separator in lines[0] else [mark for mark in ";\t|," if mark in lines[0]]
    if others:
        raise SourceError(
            f"The ending of {file} stands for values separated by {table.separator!r}, but its first line has only "
            f"{others[0]!r}. Read it with polars: {_call(table, _separated(lines, others[0]))}."
        )
    for name in dict.fromkeys(filter(None, names)):
        if names.count(name) > 1 and wanted.among([name]):
            raise SchemaError(
                f"Column names must be unique; {file} has {names.count(name)} columns {name!r}. Rename them, or let "
                f"polars number them: {_call(table)}."
            )


def _separated(lines: Sequence[str], mark: str) -> str:
    """The arguments of polars for lines whose values are separated by a mark."""
    has_comma = mark == ";" and any(re.search(r"(^|;)-?\d+,\d", line) for line in lines[1:])
    skipped = ", skip_lines=1" if lines[0].startswith("sep=") else ""  # a line of Excel
    return f"separator={mark!r}" + (", decimal_comma=True" if has_comma else "") + skipped


def check_texts(columns: Mapping[str, ColumnTexts]) -> None:
    """Raise if integers have leading zeros, or if text is numbers or times but for a few values."""
    for name, texts in columns.items():
        if texts.type == LARGE_INTEGERS:
            _check_zeros(name, *texts.misfits[INTEGERS])
        if texts.type != TEXT:
            continue
        times = [match for text in texts.first if (match := _ISO.fullmatch(text.strip()))]
        if len(times) > len(texts.first) / 2:
            zone = "UTC" if sum(match[1] is not None for match in times) > len(times) / 2 else None
            kinds = [pa.timestamp(unit, zone) for unit in ("us", "ns")]
            _refuse(name, texts, "times", min(kinds, key=lambda kind: bool(_ISO.fullmatch(texts.misfits[kind][0]))))
        if number_share([*texts.first]) > 0.5:
            _refuse(name, texts, "numbers", FLOATS)


def _check_zeros(name: str, text: str, table: Csv) -> None:
    if text.strip().startswith("0"):
        raise SchemaError(
            f"An integer in a CSV file has no leading zero; {text!r} in column {name!r} would be {int(text)} "
            f"({_place(table, name, text)}). Read it as text, or as pl.Int64 without the zeros: "
            f"{_call(table, f'schema_overrides={{{name!r}: pl.String}}')}."
        )


def _refuse(name: str, texts: ColumnTexts, what: str, kind: pa.DataType) -> None:
    text, table = texts.misfits[kind]
    dtype, missing, then = "pl.String", [text], ""
    if kind != FLOATS:
        how = f"as text without the rows of {text!r}, which time= needs"
    elif not _VALUE.search(text):
        how, dtype = f"with {text!r} as missing", "pl.Float64"
    else:
        how, missing = "as text", []
    if missing and any(other != other.strip(" ") for other in texts.first if other != text):
        # spaces around a value are part of it to polars
        cast = f".cast({dtype})" if kind == FLOATS else ""
        then = f".with_columns(pl.col({name!r}).str.strip_chars(' ').replace({text.strip(' ')!r}, None){cast})"
        dtype, missing = "pl.String", []
    if kind != FLOATS:
        then += f".drop_nulls({name!r})"
    raise SchemaError(
        f"A column of a CSV file is {what} or text; most values of {name!r} read as {what}, but {text!r} does not "
        f"({_place(table, name, text)}). Leave the column out, or read it {how}: "
        f"{_call(table, f'schema_overrides={{{name!r}: {dtype}}}', missing, then)}."
    )


def _call(table: Csv, arguments: str = "", missing: Sequence[str] = (), then: str = "") -> str:
    """A call of `ts.load` that reads the files with polars, and the same words as missing values."""
    nulls = f"null_values={sorted({*MISSING, *missing} - {''})}"
    given = [_given(table.files), arguments, nulls, "infer_schema_length=None"]
    if table.separator != "," and "separator=" not in arguments:
        given.insert(1, f"separator={table.separator!r}")
    return f"ts.load(pl.scan_csv({', '.join(filter(None, given))}){then}, ...)"


def _given(files: Sequence[File]) -> str:
    """The files of a source, as an argument of `pl.scan_csv`."""
    paths = [*map(str, files)]
    return repr(paths[0]) if len(paths) == 1 else repr(paths) if len(paths) <= _FEW else "paths"


def _place(table: Csv, name: str, text: str) -> str:
    """The file, and the line in which a column first has this text."""
    at = table.names.index(name)
    rows = records(table.numbered, table.separator)
    line = next((line for line, _, values in rows if values[at : at + 1] == [text]), None)
    return f"{table.file}" if line is None else f"{table.file}, line {line:,}"


# Lines that cannot be read


def bad_line(table: Csv) -> SourceError | None:
    """The error for the first line with more or fewer values than the header, or for quotes that stay open."""
    line, is_open = 1, False
    try:
        for line, text, values in records(table.numbered, table.separator):
            if len(values) != len(table.names):
                return _uneven(table, line, len(values))
            is_open = text.count('"') % 2 == 1
    except csv.Error:  # behind an open quote, a value is too long for Python's reader
        is_open = True
    if not is_open:
        return None
    return SourceError(
        f"Quotes in a CSV file are around a value, and doubled within one; those of {table.file}, line {line:,} stay "
        f"open. {_quotes(table)}"
    )


def _quotes(table: Csv) -> str:
    return f"Correct the file, or read quotes as text: {_call(table, 'quote_char=None')}."


def _uneven(table: Csv, line: int, count: int) -> SourceError:
    width = len(table.names)
    arguments = f"skip_lines={line - 1}" if width == 1 else "truncate_ragged_lines=True"
    how = "begin with this line, if it has the names" if width == 1 else "fill short lines and cut long ones"
    return SourceError(
        f"Each line of a CSV file has a value for each column; {table.file}, line {line:,} has {count} of {width} "
        f"values. Correct it, or {how}: {_call(table, arguments)}."
    )


@contextmanager
def unreadable(file: File, table: Csv | None = None) -> Iterator[None]:
    """Re-raise errors of reading a file with its name and, if known, the line."""
    import polars as pl

    errors = (
        UnicodeError,
        csv.Error,
        OSError,
        pa.ArrowException,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    )
    try:
        yield
    except SourceError:
        raise
    except errors as error:
        if table is not None and isinstance(error, (pl.exceptions.InvalidOperationError, pa.ArrowInvalid)):
            raise MisfitError from error
        why, is_of_system = first_line(error), isinstance(error, (OSError, pa.ArrowException))
        if "utf-8" in why and not is_of_system:
            raise SourceError(
                f"A CSV file must be text in UTF-8; {file} is not. Write it anew, give its encoding to pl.read_csv and "
                "load the frame, or name a file that is no text by its format."
            ) from error
        said = f"{file} is not a readable CSV file: {why}."
        if table is None or is_of_system:
            raise SourceError(said) from error
        raise bad_line(table) or SourceError(f"{said} {_quotes(table)}") from error
