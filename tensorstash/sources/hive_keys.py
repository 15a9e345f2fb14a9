"""Keys of paths: the columns that come from directories named `key=value`."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from tensorstash.columns.path import PARTS
from tensorstash.columns.types import value_type, with_value_types
from tensorstash.errors import DataError
from tensorstash.sources.file import NULL_KEY, File, here
from tensorstash.sources.filter import Filter
from tensorstash.sources.read import Derived
from tensorstash.sources.storage import decoded
from tensorstash.sources.unify import widened

_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_EXACT = 1 << 53  # float64 has all integers up to it
_TEXT = pa.dictionary(pa.int32(), pa.string())
_FORMAT = pads.ParquetFileFormat()


def key_types(files: Sequence[File]) -> dict[str, pa.DataType]:
    """The type of each key that the files have."""
    texts: dict[str, set[str]] = {}
    for key, value in dict.fromkeys(pair for file in files for pair in file.keys):
        texts.setdefault(key, set()).update([] if value is None else [value])
    return {key: _TEXT if key in PARTS else _type_of_texts(values) for key, values in texts.items()}


def _type_of_texts(texts: set[str]) -> pa.DataType:
    """The narrowest of int64, float64, bool and text that gives each text back, so that no two of them become one."""
    if all(_INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63 for text in texts):
        return pa.int64()
    if all(map(_is_number, texts)) and len({float(text) for text in texts}) == len(texts):
        return pa.float64()
    return pa.bool_() if texts <= {"true", "false"} else _TEXT


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        number = float(text)
        whole = str(int(number)) if abs(number) <= _EXACT else ""
        return math.isfinite(number) and text in (repr(number), whole)
    return False


def columns_of_keys(
    file: File, stored: pa.Schema, whole: pa.Schema, types: Mapping[str, pa.DataType]
) -> tuple[Derived, ...]:
    """The keys of the path of a file, as columns of the types in `whole`; a `stored` column of a name is checked.

    `types` has those of the keys of all files.
    """
    return tuple(
        Derived(field, (key,), partial(_agreeing, key, value, value_type(stored.field(key).type)))
        if stored.get_field_index(key) >= 0
        else Derived(field, (), partial(_constant, value, types[key], field))
        for key, value in dict(file.keys).items()
        if whole.get_field_index(key) >= 0
        for field in [whole.field(key)]
    )


def _constant(value: str | None, arrow: pa.DataType, field: pa.Field, _: object, place: str, *__: object) -> pa.Array:
    return widened(pa.array([value], pa.string()).cast(arrow), field, place)


def _agreeing(
    name: str,
    key: str | None,
    stored: pa.DataType,
    arrays: Sequence[pa.Array],
    _place: str,
    name_row: Callable[[int], str],
) -> pa.Array:
    """The column, whose values must be that of the key of its name, in the type that the file has them in."""
    values = decoded(arrays[0])
    with suppress(pa.ArrowInvalid):  # times in INT96 that do not fit into the unit of the footer
        values = values.cast(stored)
    if (at := _differ(values, key).index(True).as_py()) >= 0:
        raise DataError(
            f"A column has the value of the key of its name in the path; column {name!r} has {values[at].as_py()!r} in "
            f"row {name_row(at)}, and the path says '{name}={NULL_KEY if key is None else key}'. Correct one of them; "
            "or name the files one by one: then their directories are no keys."
        )
    return arrays[0]


def _differ(values: pa.Array, key: str | None) -> pa.Array:
    """Where values differ from a key; nowhere for types that a path cannot tell."""
    if key is None:
        return values.is_valid()
    try:
        return pc.fill_null(pc.not_equal(values, pa.scalar(key).cast(values.type)), True)
    except pa.ArrowException as error:  # the text is no value of this type, or may be one of another zone
        is_untold = (
            isinstance(error, pa.ArrowNotImplementedError)
            or isinstance(values.type, pa.BaseExtensionType)
            or getattr(values.type, "tz", None) is not None
        )
        return pa.array(np.full(len(values), not is_untold))


def kept_files(
    files: Sequence[File], types: Mapping[str, pa.DataType], schema: pa.Schema, condition: Filter | None
) -> Sequence[File]:
    """The files whose keys, of these `types`, do not contradict the filter; the first one if all do.

    `schema` has all columns of a file.
    """
    if condition is None or condition.formula is not None or not types:
        return files
    system = here()
    fragments = [
        _FORMAT.make_fragment(str(k), system, partition_expression=_claim(file, types)) for k, file in enumerate(files)
    ]
    dataset = pads.FileSystemDataset(fragments, with_value_types(schema), _FORMAT, system)
    with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, by name
        kept = [files[int(fragment.path)] for fragment in dataset.get_fragments(condition.fitted(schema).expression)]
        return kept or files[:1]
    return files


def _claim(file: File, types: Mapping[str, pa.DataType]) -> pc.Expression:
    """The condition that the keys of a path guarantee for every row of the file."""
    claim = pc.scalar(True)
    for key, value in file.keys:
        if key in types:
            plain = pa.scalar(value, pa.string()).cast(value_type(types[key]))
            claim &= pc.field(key) == plain if plain.is_valid else pc.field(key).is_null()
    return claim
