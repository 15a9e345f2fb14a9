"""Lines of CSV files as Arrow columns, and the error for a line that cannot be parsed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tensorstash.columns.schema import Type, arrow_of
from tensorstash.errors import DataError, SourceError
from tensorstash.sources.file import File


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a file, in their order, and how each is read."""

    file: File
    names: tuple[str, ...]
    types: Mapping[str, Type]
    delimiter: str

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([(name, arrow_of(self.types[name])) for name in self.names])


def parse(data: bytes, header: Header, names: Sequence[str], line: int) -> pa.RecordBatch:
    """Some columns of the lines from number `line` on."""
    try:
        return _values(data, header, names)
    except pa.ArrowInvalid as error:
        raise blamed(data, header, names, line) or error from error


def _values(data: bytes, header: Header, names: Sequence[str]) -> pa.RecordBatch:
    plain = {name: read_as(header.types[name]) for name in names}
    options = csv.ConvertOptions(include_columns=list(names), column_types=plain)
    table = parsed(data, header, options)
    arrays = [_formatted(table[name].combine_chunks(), header.types[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def parsed(data: bytes, header: Header, options: csv.ConvertOptions) -> pa.Table:
    """Some lines as a table."""
    reading = csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(header.names))
    return csv.read_csv(pa.BufferReader(data), reading, csv.ParseOptions(delimiter=header.delimiter), options)


def read_as(asked: Type) -> pa.DataType:
    """The type that pyarrow reads a column in, before a time in a format of its own is parsed."""
    return pa.string() if isinstance(asked, str) else arrow_of(asked)


def known_type(found: pa.DataType) -> pa.DataType:
    """The type of a column: numbers where all are missing so far, and text where it is not even that."""
    if pa.types.is_null(found):
        return pa.float64()
    return pa.string() if pa.types.is_binary(found) else found


def _formatted(array: pa.Array, asked: Type) -> pa.Array:
    return pc.strptime(array, format=asked, unit="s") if isinstance(asked, str) else array


# Blame


def blamed(data: bytes, header: Header, names: Sequence[str], line: int) -> Exception | None:
    """The error for lines that cannot be parsed: which of them it is, and which value."""
    raw = replace(header, types=dict.fromkeys(header.names, pa.binary()))
    lines = data.splitlines(keepends=True)
    at = _first_bad(lines, lambda some: _fails(some, header, names))
    where, bad = f"{header.file}, line {line + at:,}", lines[at]
    if _fails(bad, raw, header.names[:1]):
        return SourceError(
            f"A line of a CSV file has a value for each of the {len(header.names)} columns of the first one; {where}, "
            f"has {short(bad)}. Correct the file."
        )
    name = next((name for name in names if _fails(bad, header, [name])), None)
    if name is None:
        return None
    value = _values(bad, raw, [name]).column(0)[0].as_py()
    asked = header.types[name]
    return DataError(
        f"A column of a CSV file has the type of its first lines, or that of schema=; {short(value)} in column "
        f"{name!r} is no {_kind(asked)} ({where}). {_remedy(asked, value, name, header.file)}"
    )


def _remedy(asked: Type, value: bytes, name: str, file: File) -> str:
    if isinstance(asked, str):
        return "Correct it, or the format."
    if _is_text(asked):
        return in_utf8(file)
    other = "float64" if pa.types.is_integer(arrow_of(asked)) and _is_number(value) else "string"
    return f"Correct it, or say another type: schema={{{name!r}: {other!r}}}."


def _fails(data: bytes, header: Header, names: Sequence[str]) -> bool:
    try:
        _values(data, header, names)
    except pa.ArrowInvalid:
        return bool(data.strip())
    return False


def _kind(asked: Type) -> str:
    if isinstance(asked, str):
        return f"time like {asked!r}"
    return "text in UTF-8" if _is_text(asked) else str(asked)


def _is_text(asked: Type) -> bool:
    return bool(pa.types.is_dictionary(arrow_of(asked)))


def _first_bad(lines: Sequence[bytes], fails: Callable[[bytes], bool]) -> int:
    """The index of the first line that fails, by bisection."""
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(b"".join(lines[low:middle])) else (middle, high)
    return low


def _is_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def short(value: bytes) -> str:
    """The beginning of a value or line, for messages."""
    text = value.decode(errors="backslashreplace").rstrip("\r\n")
    return repr(text if len(text) <= 60 else text[:59] + "…")


def in_utf8(file: File) -> str:
    """The remedy for text that is not UTF-8."""
    return f"Write it again, or read it with polars: ts.load(pl.read_csv({file.path!r}, encoding=...), ...)."
