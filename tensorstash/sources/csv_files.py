"""CSV files as blocks of whole lines: rows are counted once, then pyarrow parses a block each time it is read."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv

from tensorstash.columns.schema import Type
from tensorstash.common.dtypes import Int64s
from tensorstash.common.threads import each, threads
from tensorstash.errors import SchemaError, SourceError, unknown
from tensorstash.sources.csv_values import Header, blamed, in_utf8, known_type, parse, parsed, read_as, short
from tensorstash.sources.file import HERE, File
from tensorstash.sources.spool import Spool

_FIRST = 1 << 20  # bytes that types are inferred from, as many as pyarrow's reader of streams takes
_BLOCK = 1 << 22  # bytes that are parsed at a time: the memory of one is that of the next, and in the cache
_CACHED = 1 << 17  # bytes looked at together: larger arrays are given back to the system, and cleared when they return
_LONGEST = 1 << 26  # bytes of a line
_NEWLINE, _QUOTE = ord("\n"), ord('"')


class Bytes(Protocol):
    """Bytes with random access, for several threads at a time."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def read(self, start: int, size: int) -> bytes:
        """The bytes from `start` on, `size` of them."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """An uncompressed local file; it is open only during a read, because there may be many files."""

    path: str
    size: int

    def read(self, start: int, size: int) -> bytes:
        with open(self.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, start)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file."""

    start: int
    size: int
    rows: int
    line: int  # the number of the first


@dataclass(frozen=True, slots=True)
class _Look:
    """The newlines in a piece of a file: the places of the first and the last, and how many there are."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file whose rows have been counted."""

    header: Header
    data: Bytes
    blocks: tuple[Block, ...]

    def place(self, index: int) -> str:
        """A block for messages."""
        return f"{self.header.file}, from line {self.blocks[index].line:,} on"

    def batches(self, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a block."""
        block = self.blocks[index]
        yield parse(self.data.read(block.start, block.size), self.header, names, block.line)


def first_types(files: Sequence[File], schema: Mapping[str, Type]) -> dict[str, Type]:
    """The types of all columns: those that `schema=` names, and as pyarrow infers them from the first lines."""
    header, body, line = _first_lines(files)
    file, names = header.file, header.names
    if missing := [name for name in schema if name not in names]:
        raise unknown(missing[0], names, str(file))
    if not body.strip():
        return {name: schema.get(name, pa.float64()) for name in names}
    options = csv.ConvertOptions(column_types={name: read_as(asked) for name, asked in schema.items()})
    try:
        found = parsed(body, header, options).schema
    except pa.ArrowInvalid as error:
        plain = replace(header, types={name: schema.get(name, pa.binary()) for name in names})
        raise blamed(body, plain, names, line) or error from error
    except pa.ArrowNotImplementedError as error:
        shown = ", ".join(f"{name!r} as {asked}" for name, asked in schema.items())
        raise SchemaError(
            f"schema= has types that pyarrow reads from CSV; {file} is to have {shown}: {error}."
        ) from error
    _check_decimals(body, header, [name for name, kind in zip(names, found.types) if pa.types.is_string(kind)], schema)
    return {name: schema.get(name) or known_type(found.field(k).type) for k, name in enumerate(names)}


def _first_lines(files: Sequence[File]) -> tuple[Header, bytes, int]:
    """The columns of the first file that has rows, and its first lines with the number of the first."""
    for file in files:
        with _unreadable(file), _stream(file) as stream:
            head = _head(stream.read(_FIRST))
        header, start, line = _header(head, file)
        if (body := head[start:]).strip():
            return header, body, line
    return header, b"", line


def _check_decimals(body: bytes, header: Header, texts: Sequence[str], schema: Mapping[str, Type]) -> None:
    """Refuse numbers with decimal commas, which would be loaded as text."""
    if header.delimiter == "," or b"," not in body:
        return
    options = csv.ConvertOptions(decimal_point=",", include_columns=[name for name in texts if name not in schema])
    for field in parsed(body, header, options).schema if options.include_columns else ():
        if pa.types.is_floating(field.type):
            raise SchemaError(
                f"Numbers of a CSV file have decimal points; {field.name!r} of {header.file} has decimal commas. "
                f"Read it with polars: ts.load(pl.scan_csv({header.file.path!r}, separator={header.delimiter!r}, "
                "decimal_comma=True), ...)."
            )


def open_csv(file: File, types: Mapping[str, Type]) -> CsvFile:
    """Count the rows of a file; one that is compressed or elsewhere is brought into a file on disk first."""
    with _unreadable(file):
        data = _data(file)
    header, start, line = _header(_head(data.read(0, _FIRST)), file)
    header = replace(header, types={name: types.get(name, pa.string()) for name in header.names})
    blocks = _plain_blocks(data, start, line) or _blocks(data, header, start, line)
    return CsvFile(header, data, tuple(blocks))


@contextmanager
def _unreadable(file: File) -> Iterator[None]:
    """Re-raise errors of opening and reading a file with its name."""
    try:
        yield
    except SourceError:
        raise
    except UnicodeError as error:
        raise SourceError(f"A CSV file is text in UTF-8; {file} is not: {error}. {in_utf8(file)}") from error
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file} is not a readable CSV file: {error}") from error


def _stream(file: File) -> pa.NativeFile:
    """The bytes of a file, decompressed if its name ends so."""
    return (file.system or HERE).open_input_stream(file.path, compression="detect")


def _data(file: File) -> Bytes:
    if file.system is None and file.path.lower().endswith((".csv", ".tsv")):
        return _Plain(file.path, os.path.getsize(file.path))
    spool = Spool(str(file), (file.system or HERE).get_file_info(file.path).size or 0)
    with _stream(file) as stream:
        while data := stream.read(_BLOCK):
            spool.append(data)
    return spool


# Lines


def _head(data: bytes) -> bytes:
    """The whole lines of the first bytes; all of them if there is one line, which then ends the file or is too long."""
    return data[: _end(data) or None] if len(data) == _FIRST else data


def _header(head: bytes, file: File) -> tuple[Header, int, int]:
    """The columns, without their types, and the place and number of the line behind them."""
    lines = head.splitlines(keepends=True)
    at = next((k for k, line in enumerate(lines) if line.strip()), None)
    if at is None:
        raise SourceError(f"A CSV file begins with a line of column names; {file} is empty.")
    delimiter = "\t" if file.has_tabs and b"\t" in lines[at] else _delimiter(lines[at])
    with _unreadable(file):
        options = csv.ParseOptions(delimiter=delimiter)
        names = csv.read_csv(pa.BufferReader(lines[at] + b"\n"), parse_options=options).schema.names
    return Header(file, tuple(names), {}, delimiter), sum(map(len, lines[: at + 1])), at + 2


def _delimiter(line: bytes) -> str:
    """What separates the names of the columns: a comma, or where there is none, a semicolon or a tab."""
    plain = b"".join(line.split(b'"')[::2])  # without what stands in quotes
    return next((one for one in (",", ";", "\t") if one.encode() in plain), ",")


def _plain_blocks(whole: Bytes, start: int, line: int) -> list[Block]:
    """The blocks of a file in which every newline ends a row, counted by several threads; none of any other file."""
    places = range(start, whole.size, _BLOCK)
    looks = each(lambda at: _look(whole.read(at, _BLOCK)), places, threads(), "lines", progress=False)
    blocks: list[Block] = []
    for at, look in zip(places, looks):
        if look is None or (look.first == 0 and at == start):
            return []
        blocks.append(Block(start, at + look.last + 1 - start, look.count, line))
        start, line = at + look.last + 1, line + look.count
    return [*blocks, Block(start, whole.size - start, 1, line)] if start < whole.size else blocks


def _look(data: bytes) -> _Look | None:
    """The newlines in a piece of a file; `None` if there is none, or one that may end no row."""
    if b'"' in data or b"\r" in data:
        return None
    count = 0
    for at in range(0, len(data), _CACHED):
        ends = np.frombuffer(data, np.uint8, min(_CACHED + 1, len(data) - at), at) == _NEWLINE
        count += int(np.count_nonzero(ends[:_CACHED]))
        if np.count_nonzero(ends[1:] & ends[:-1]):
            return None
    if not count:
        return None
    return _Look(data.find(b"\n"), data.rfind(b"\n"), count)


def _blocks(whole: Bytes, header: Header, start: int, line: int) -> Iterator[Block]:
    """Cut a file, from the byte `start` on, into blocks of whole lines."""
    size = _BLOCK
    while start < whole.size:
        data = whole.read(start, size)
        end = len(data) if start + len(data) >= whole.size else _end(data)
        if not end and size < _LONGEST:
            size *= 2
            continue
        end = end or data.rfind(b"\n") + 1  # a quote within a value has no other one
        if not end:
            raise SourceError(f"{header.file} is no CSV file: line {line:,} has more than {_LONGEST:,} bytes.")
        data, size = data[:end], _BLOCK
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
        if data.strip():
            rows = len(ends) + (not data.endswith(b"\n"))
            yield Block(start, end, rows if _are_rows(data, ends) else _count(data, header, line), line)
        line += len(ends)
        start += end


def _end(data: bytes) -> int:
    """The end of the last whole line, or 0; within quotes, text may go on in the next one."""
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    plain = np.frombuffer(data, np.uint8)
    quoted = np.cumsum(plain == _QUOTE, dtype=np.uint8) & 1
    ends = np.flatnonzero((plain == _NEWLINE) & (quoted == 0))
    return int(ends[-1]) + 1 if len(ends) else 0


def _are_rows(data: bytes, ends: Int64s) -> bool:
    """Whether each line of a block is certainly one row: no line is empty, and no quoted value spans two lines."""
    returns = data.count(b"\r")
    shortest = 2 if returns else 1
    sizes = np.diff(ends, prepend=-1)
    return b'"' not in data and returns == data.count(b"\r\n") and bool((sizes > shortest).all())


def _count(data: bytes, header: Header, line: int) -> int:
    """The number of rows of a block, found by parsing its last column and a row behind it.

    A value without its closing quote takes in that row, as it does all lines to the end.
    """
    raw = replace(header, types=dict.fromkeys(header.names, pa.binary()))
    row = b"\n" + header.delimiter.encode().join([b"x"] * len(header.names)) + b"\n"
    last = parse(data + row, raw, header.names[-1:], line).column(0)
    value = last[-1].as_py()
    if value == b"x":
        return len(last) - 1
    at = line + data.rstrip().count(b"\n") - value.removesuffix(row).rstrip().count(b"\n")
    raise SourceError(
        f"A value of a CSV file that begins with a quote ends with one; {header.file}, line {at:,}, has "
        f"{short(value.splitlines()[0])}. Correct the file."
    )
