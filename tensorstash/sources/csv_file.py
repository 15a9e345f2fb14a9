"""A CSV file on this machine: its header, its rows as text, and its lines with their numbers."""

import csv
import io
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorstash.errors import SourceError
from tensorstash.sources.file import File, here
from tensorstash.sources.formats import TABS
from tensorstash.sources.spool import Spool

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
_COPIED = 1 << 22  # bytes copied at a time
_EMPTY_LINE = re.compile(rb"\n *\r?\n")


@dataclass(frozen=True, slots=True)
class Csv:
    """A CSV file."""

    file: File
    path: str  # decompressed, and without empty lines
    numbered: str  # with its empty lines, for the numbers of lines in messages
    names: tuple[str, ...]
    separator: str
    files: Sequence[File]  # all files of the source, for messages
    copies: tuple[Spool, ...]  # keep the paths alive

    def frame(self) -> "pl.LazyFrame":
        """The rows, as text."""
        import polars as pl

        return pl.scan_csv(
            self.path,
            separator=self.separator,
            null_values=[*MISSING],
            infer_schema=False,
            glob=False,
        )

    def may_have_bad_line(self) -> bool:
        """Whether a line has fewer separators than the header, or the file ends within quotes.

        A line that ends within quotes is only a part of its record, so there may be no short record.
        """
        import polars as pl

        lines = pl.scan_csv(
            self.path,
            has_header=False,
            separator="\x1f",  # which texts do not contain, so that each line is one value
            quote_char=None,
            schema={"line": pl.String},
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
            glob=False,
        )
        line = pl.col("line").fill_null("")
        is_short = (line.str.count_matches(self.separator, literal=True) < len(self.names) - 1).any()
        ends_open = line.last().str.count_matches('"', literal=True) % 2 == 1
        return bool(lines.select(is_short | ends_open).collect(engine="streaming").item())


def open_csv(file: File, files: Sequence[File]) -> Csv:
    """Read the header. A file that is compressed, remote, or has empty lines is copied to a file on disk first."""
    copies = []
    path, separator = file.path, "\t" if file.name.endswith(TABS.endings) else ","
    if file.system is not None or file.name.endswith((".gz", ".zst")):
        copies.append(_copy(file))
        path = copies[0].path()
    numbered = path
    names = next((tuple(values) for _, _, values in records(path, separator)), None)
    if names is None:
        raise SourceError(f"A CSV file must begin with a line of column names; {file} is empty.")
    with open(path, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        has_empty_lines = data[:1] in b"\r\n " or _EMPTY_LINE.search(data) is not None
    if has_empty_lines:
        copies.append(_without_empty_lines(file, path, separator, len(names)))
        path = copies[-1].path()
    return Csv(file, path, numbered, names, separator, files, tuple(copies))


def _copy(file: File) -> Spool:
    copy = Spool(str(file))
    with (file.system or here()).open_input_stream(file.path, compression="detect") as stream:
        while data := stream.read(_COPIED):
            copy.append(data)
    return copy


def _without_empty_lines(file: File, path: str, separator: str, width: int) -> Spool:
    copy, last = Spool(str(file)), 0
    for line, text, values in records(path, separator):
        if last and width == len(values) == 1 and line - last > len([*io.StringIO(text, newline="")]):
            raise SourceError(
                f"In a CSV file of one column, an empty line may be a missing value or no row; line {last + 1:,} of "
                f"{file} is empty. Write ts.load(pl.scan_csv({str(file)!r}), ...) for missing values, or "
                f"ts.load(pl.scan_csv({str(file)!r}).drop_nulls(), ...) without such rows."
            )
        copy.append(text.encode(errors="surrogateescape"))
        last = line
    return copy


def records(path: str, separator: str) -> Iterator[tuple[int, str, list[str]]]:
    """The number of its last line, the text and the values of each record, from the header on; empty lines are none."""
    held: list[str] = []
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        reader = csv.reader((held.append(line) or line for line in file), delimiter=separator)  # type: ignore[func-returns-value]
        for values in reader:
            text = "".join(held)
            held.clear()
            if text.strip(" \r\n"):
                yield reader.line_num, text, values
