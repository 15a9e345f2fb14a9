"""Partition keys: the columns that come from directories named `key=value`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from tensorstash.sources.file import HERE, File
from tensorstash.sources.filter import Filter

_FORMAT = pads.ParquetFileFormat()


def key_types(files: Sequence[File]) -> dict[str, pa.DataType]:
    """The type of each key: int64 if all its values are integers, else text."""
    values: dict[str, set[str | None]] = {}
    for keys in {file.keys for file in files}:
        for key, value in keys:
            values.setdefault(key, set()).add(value)
    text = pa.dictionary(pa.int32(), pa.string())
    return {key: pa.int64() if all(map(_is_integer, found)) else text for key, found in values.items()}


def _is_integer(value: str | None) -> bool:
    return value is None or (value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 19)


def with_keys(own: pa.Schema, file: File, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema with the keys of the path appended; a column stored in the file takes precedence over a key."""
    for key in dict(file.keys):
        if key not in own.names:
            own = own.append(pa.field(key, types[key]))
    return own


def constant(value: str | None, arrow: pa.DataType, rows: int) -> pa.Array:
    """An array that repeats the value of a key."""
    if value is None:
        return pa.nulls(rows, arrow)
    if pa.types.is_dictionary(arrow):
        return pa.repeat(pa.scalar(value), rows).dictionary_encode()
    return pa.repeat(pa.scalar(int(value), arrow), rows)


def kept_files(
    files: Sequence[File], types: Mapping[str, pa.DataType], schema: pa.Schema, condition: Filter
) -> Sequence[File]:
    """The files whose keys, of these `types`, do not contradict the filter; `schema` has all columns of a file."""
    claims = [_claim(file, types) for file in files]
    fragments = [_FORMAT.make_fragment(str(k), HERE, partition_expression=about) for k, about in enumerate(claims)]
    dataset = pads.FileSystemDataset(fragments, schema, _FORMAT, HERE)
    with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, by name
        return [files[int(fragment.path)] for fragment in dataset.get_fragments(condition.expression)]
    return files


def _claim(file: File, types: Mapping[str, pa.DataType]) -> pc.Expression:
    """The condition that the keys of a path guarantee for every row of the file."""
    about = pc.scalar(True)
    for key, value in file.keys:
        if key in types:
            plain = value if value is None or pa.types.is_dictionary(types[key]) else int(value)
            about &= pc.field(key).is_null() if plain is None else pc.field(key) == plain
    return about
