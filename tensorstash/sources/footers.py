"""What is known of a file before its rows are decoded: its columns, and the rows of its pieces."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tensorstash.sources.file import File

if TYPE_CHECKING:
    from tensorstash.sources.parquet import RowGroups


class Readers:
    """Readers that no thread uses at the moment: to make one may take longer than to read a piece with it."""

    def __init__(self) -> None:
        self._idle = deque[tuple[Any, Any]]()  # with what each was made for

    @contextmanager
    def taken(self, fits: Callable[[Any], bool], made_for: object, make: Callable[[], Any]) -> Iterator[Any]:
        """A reader for this thread alone: the last one that was used, if what it was made for fits, or a new one."""
        reader = None
        with suppress(IndexError):
            made, reader = self._idle.pop()
        if reader is None or not fits(made):
            made, reader = made_for, make()
        yield reader
        self._idle.append((made, reader))

    def __reduce__(self) -> tuple[type["Readers"], tuple[()]]:
        """Another process, such as one that makes shards, makes its own readers."""
        return Readers, ()


@dataclass(frozen=True)
class Footer:
    """The columns and row counts of a file, and how its pieces are decoded."""

    file: File
    stored: pa.Schema
    rows: Sequence[int]  # the row count of each piece
    piece: str  # what a piece is, such as "row group"; empty if the file is one piece
    decode: Callable[["Footer", int, Sequence[str]], Iterator[pa.RecordBatch]]  # the stored columns of a piece
    readers: Readers
    # of Parquet alone: what the footer tells of the row groups, and the columns of INT96 that do not fit in nanoseconds
    groups: "RowGroups | None" = None
    wide: Collection[str] = ()

    @cached_property
    def own(self) -> frozenset[str]:
        """The names of the stored columns."""
        return frozenset(self.stored.names)

    def place(self, index: int) -> str:
        """A piece of the file, for messages."""
        return f"{self.file}, {self.piece} {index}" if self.piece else str(self.file)
