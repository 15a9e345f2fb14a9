"""Errors for CSV files: each names the file and, where it can, the line, and ends with a call that reads the file."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

import pyarrow as pa

from tensorstash.columns.names import check_for_polars
from tensorstash.columns.number_texts import number_share
from tensorstash.errors import SchemaError, SourceError
from tensorstash.sources.csv_file import MISSING, Csv
from tensorstash.sources.csv_types import FLOATS, INTEGERS, LARGE_INTEGERS, TEXT, MisfitError, Texts
from tensorstash.sources.evaluate import first_line
from tensorstash.sources.file import File, here
from tensorstash.sources.formats import TABS
from tensorstash.sources.read import Wanted

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)? ?(Z|[+-]\d\d:?(?:\d\d)?)?")
_VALUE = re.compile(r"\d|true|false", re.IGNORECASE)  # what a word for a missing value does not have
_FEW = 5  # most files that a remedy lists
_LINES = 100  # lines that show how numbers are written
_OLD_MAC = r"eol_char='\r'"
_HEAD = 1 << 16  # bytes that show what a file is


def check_header(table: Csv, wanted: Wanted) -> None:
    """Raise if the first line names a wanted column twice, or if lines or values end in another way."""
    names, file = table.names, table.file
    lines = [text for _, text, _ in islice(table.records(), _LINES)]
    "".join(lines).encode()  # raises if a line is not UTF-8
    check_for_polars(names)
    if lines[0].endswith("\r"):
        raise SourceError(
            rf"Lines of a CSV file end with \n; those of {file} end with \r. "
            f"Read it with polars: {_call(table, _OLD_MAC)}."
        )
    if (mark := _mark(lines[0], table.separator)) is not None:
        raise SourceError(
            f"The ending of {file} stands for values separated by {table.separator!r}, but its first line has only "
            f"{mark!r}. Read it with polars: {_call(table, _separated(lines, mark))}."
        )
    for name in dict.fromkeys(filter(None, names)):
        if names.count(name) > 1 and wanted.among([name]):
            raise SchemaError(
                f"Column names must be unique; {file} has {names.count(name)} columns {name!r}. Rename them, or let "
                f"polars number them: {_call(table)}."
            )


def _mark(header: str, separator: str) -> str | None:
    """The mark that separates the names in a header without the expected one."""
    return None if separator in header else next((mark for mark in ";\t|," if mark in header), None)


def _separated(lines: Sequence[str], mark: str) -> str:
    """The arguments of polars for lines whose values are separated by a mark."""
    has_comma = mark == ";" and any(re.search(r"(^|;)-?\d+,\d", line) for line in lines[1:])
    skipped = ", skip_lines=1" if lines[0].startswith("sep=") else ""  # a line of Excel
    return f"separator={mark!r}" + (", decimal_comma=True" if has_comma else "") + skipped


def check_texts(columns: Mapping[str, Texts]) -> None:
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


def _refuse(name: str, texts: Texts, what: str, kind: pa.DataType) -> None:
    text, table = texts.misfits[kind]
    if kind == FLOATS and not _VALUE.search(text):
        how = f"with {text!r} as missing: {_call(table, f'schema_overrides={{{name!r}: pl.Float64}}', [text])}"
    else:
        how = f"as text: {_call(table, f'schema_overrides={{{name!r}: pl.String}}')}"
    raise SchemaError(
        f"A column of a CSV file is {what} or text; most values of {name!r} read as {what}, but {text!r} does not "
        f"({_place(table, name, text)}). Leave the column out, or read it {how}."
    )


def _call(table: Csv, arguments: str = "", missing: Sequence[str] = ()) -> str:
    """A call of `ts.load` that reads the files with polars, and the same words as missing values."""
    nulls = f"null_values={sorted({*MISSING, *missing} - {''})}"
    given = [_given(table.files), arguments, nulls, "infer_schema_length=None"]
    if table.separator != "," and "separator=" not in arguments:
        given.insert(1, f"separator={table.separator!r}")
    return f"ts.load(pl.scan_csv({', '.join(filter(None, given))}), ...)"


def _given(files: Sequence[File]) -> str:
    """The files of a source, as an argument of `pl.scan_csv`."""
    paths = [*map(str, files)]
    return repr(paths[0]) if len(paths) == 1 else repr(paths) if len(paths) <= _FEW else "paths"


def _place(table: Csv, name: str, text: str) -> str:
    """The file, and the line in which a column first has this text."""
    at = table.names.index(name)
    line = next((line for line, _, values in table.records() if values[at : at + 1] == [text]), None)
    return f"{table.file}" if line is None else f"{table.file}, line {line:,}"


# Lines that cannot be read


def bad_line(table: Csv, stray_quotes: bool) -> SourceError | None:
    """The error for the first line with more or fewer values than the header, or with quotes not around a value."""
    width, mark = len(table.names), re.escape(table.separator)
    quoted = re.compile(rf'(?<![^{mark}])"(?:[^"]|"")*"(?![^{mark}\r\n])')
    line, text = 1, ""
    with suppress(csv.Error):  # a value that is too long for Python's reader
        for line, text, values in table.records():
            if len(values) != width:
                return _uneven(table, line, len(values))
            if stray_quotes and '"' in text and '"' in quoted.sub("", text):
                break
        else:
            if text.count('"') % 2 == 0:
                return None
    return SourceError(
        f"Quotes in a CSV file are around a value, and doubled within one; {table.file}, line {line:,} has others. "
        f"Correct the file, or read quotes as text: {_call(table, 'quote_char=None')}."
    )


def _uneven(table: Csv, line: int, count: int) -> SourceError:
    width = len(table.names)
    if width == 1:
        remedy = f"If this line has the names: {_call(table, f'skip_lines={line - 1}')}"
    elif count > width:
        remedy = f"Correct it, or leave out what is too much: {_call(table, 'truncate_ragged_lines=True')}"
    else:
        remedy = f"Correct it, or take what is absent as missing: {_call(table)}"
    return SourceError(
        f"Each line of a CSV file has a value for each column; {table.file}, line {line:,} has {count} of {width} "
        f"values. {remedy}."
    )


@contextmanager
def unreadable(file: File, files: Sequence[File], table: Csv | None = None) -> Iterator[None]:
    """Re-raise errors of reading one of the files of a source with its name and, if known, the line."""
    import polars as pl

    try:
        yield
    except SourceError:
        raise
    except (pl.exceptions.InvalidOperationError, pa.ArrowInvalid) as error:
        if table is not None:
            raise MisfitError from error
        raise SourceError(f"{file} is not a readable CSV file: {error}") from error
    except (UnicodeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = first_line(error)
        if "utf-8" in why:
            raise _not_utf8(file, files) from error
        bad = None if table is None else bad_line(table, stray_quotes=True)
        raise bad or SourceError(f"{file} is not a readable CSV file: {why}.") from error
    except (pa.ArrowException, OSError, csv.Error) as error:
        raise SourceError(f"{file} is not a readable CSV file: {error}") from error


def _not_utf8(file: File, files: Sequence[File]) -> SourceError:
    with (file.system or here()).open_input_stream(file.path, compression="detect") as stream:
        head = stream.read(_HEAD)
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin-1"
    if encoding == "latin-1" and b"\0" in head:
        return SourceError(f"A CSV file must be text; {file} is binary. Name it by its format, such as .parquet.")
    separator = "\t" if file.name.endswith(TABS) else ","
    lines = head.decode(encoding, "replace").splitlines()
    mark = _mark(lines[0], separator) or separator
    arguments = f"encoding={encoding!r}, {_separated(lines, mark)}, infer_schema_length=None"
    read = f"pl.read_csv({str(file)!r}, {arguments})"
    if not file.path.lower().endswith((".csv", ".tsv")):  # polars decompresses only what it need not decode
        read = f"pl.read_csv(pa.input_stream({str(file)!r}).read(), {arguments})"
    if len(files) > 1:
        read = f"pl.concat([pl.read_csv(path, {arguments}) for path in {_given(files)}], how='vertical_relaxed')"
    return SourceError(
        f"A CSV file must be text in UTF-8; {file} is not. Write it anew, or read it with polars: ts.load({read}, ...)."
    )
