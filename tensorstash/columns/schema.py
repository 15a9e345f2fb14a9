"""`schema=`: the types of columns that the source does not define, or the format of its times."""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import torch

from tensorstash.columns.types import ARROW_OF

Type: TypeAlias = pa.DataType | str  # a text is the format of a time, as in `strptime`


def parse_schema(given: Any) -> dict[str, Type]:
    """The Arrow type, or the format of a time, of each column that `schema=` names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"schema= is a mapping from names of columns to types; got {given!r}.")
    return {name: _type(name, asked) for name, asked in given.items()}


def _type(name: str, asked: Any) -> Type:
    polars = sys.modules.get("polars")
    if isinstance(asked, pa.DataType) or (isinstance(asked, str) and "%" in asked):
        return asked
    if isinstance(asked, torch.dtype) and asked in ARROW_OF:
        return ARROW_OF[asked]
    if polars is not None and (isinstance(asked, polars.DataType) or _is_class(asked, polars.DataType)):
        return polars.Series([], dtype=asked).to_arrow().type
    if isinstance(asked, str):
        try:
            return pa.type_for_alias(asked)
        except ValueError:
            pass
    raise TypeError(
        f"A type in schema= is one of pyarrow, polars or torch, its name in pyarrow, as 'timestamp[s]', or the format "
        f"of a time, as '%d.%m.%Y %H:%M'; {name!r} has {asked!r}."
    )


def _is_class(asked: Any, base: type) -> bool:
    return isinstance(asked, type) and issubclass(asked, base)


def arrow_of(asked: Type) -> pa.DataType:
    """The Arrow type of a `schema=` entry: a time format gives timestamps, and text a dictionary."""
    if isinstance(asked, str):
        return pa.timestamp("s")
    is_text = pa.types.is_string(asked) or pa.types.is_large_string(asked) or pa.types.is_string_view(asked)
    return pa.dictionary(pa.int32(), pa.string()) if is_text else asked
