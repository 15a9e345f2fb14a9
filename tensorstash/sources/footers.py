"""What is known of a file before its rows are decoded: its columns, the rows of its pieces, the keys of its path."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from tensorstash.columns.path import PARTS
from tensorstash.columns.types import value_type
from tensorstash.sources.file import File, here
from tensorstash.sources.filter import Filter

_INTEGER = re.compile("-[0-9]{1,17}|[0-9]{1,18}")
_FORMAT = pads.ParquetFileFormat()


class Recent(local):
    """The reader that each thread has made last: to make one may take longer than to read a piece with it."""

    key: object = None
    reader: Any = None

    def get(self, key: object, make: Callable[[], Any]) -> Any:
        """The reader with this key."""
        if self.key != key:
            self.reader, self.key = make(), key
        return self.reader


@dataclass(frozen=True)
class Footer:
    """The columns and row counts of a file, and how its pieces are decoded."""

    file: File
    stored: pa.Schema
    rows: Sequence[int]  # the row count of each piece
    piece: str  # what a piece is, such as "row group"; empty if the file is one piece
    decode: Callable[["Footer", int, Sequence[str]], Iterator[pa.RecordBatch]]  # the stored columns of a piece
    recent: Recent
    groups: Any = None  # what the footer of a Parquet file tells of its row groups

    @cached_property
    def own(self) -> frozenset[str]:
        """The names of the stored columns."""
        return frozenset(self.stored.names)

    def place(self, index: int) -> str:
        """A piece of the file, for messages."""
        return f"{self.file}, {self.piece} {index}" if self.piece else str(self.file)


# Partition keys: the columns that come from directories named `key=value`


def key_types(files: Sequence[File]) -> dict[str, pa.DataType]:
    """The type of each key: int64 if all its values are integers, else text."""
    types: dict[str, pa.DataType] = {}
    for key, value in dict.fromkeys(pair for file in files for pair in file.keys):
        if key in PARTS or (value is not None and not _INTEGER.fullmatch(value)):
            types[key] = pa.dictionary(pa.int32(), pa.string())
        types.setdefault(key, pa.int64())
    return types


def constant(value: str | None, arrow: pa.DataType, rows: int) -> pa.Array:
    """The value of a key, repeated for each row."""
    return pa.array([value], pa.string()).cast(arrow).take(pa.array(np.zeros(rows, np.int32)))


def kept_files(
    files: Sequence[File], types: Mapping[str, pa.DataType], schema: pa.Schema, condition: Filter
) -> Sequence[File]:
    """The files whose keys, of these `types`, do not contradict the filter; `schema` has all columns of a file."""
    if condition.formula is not None:
        return files
    claims = enumerate(_claim(file, types) for file in files)
    system = here()
    fragments = [_FORMAT.make_fragment(str(k), system, partition_expression=claim) for k, claim in claims]
    dataset = pads.FileSystemDataset(fragments, schema, _FORMAT, system)
    with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, by name
        return [files[int(fragment.path)] for fragment in dataset.get_fragments(condition.fitted(schema).expression)]
    return files


def _claim(file: File, types: Mapping[str, pa.DataType]) -> pc.Expression:
    """The condition that the keys of a path guarantee for every row of the file."""
    claim = pc.scalar(True)
    for key, value in file.keys:
        if key in types:
            plain = pa.scalar(value, pa.string()).cast(value_type(types[key]))
            claim &= pc.field(key) == plain if plain.is_valid else pc.field(key).is_null()
    return claim
