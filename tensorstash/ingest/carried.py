"""Values of static columns that a load takes over from `like=`: of columns, and of entities, that its rows lack."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.columns.column import Column, with_counts, with_more
from tensorstash.common.dtypes import as_array
from tensorstash.errors import DataError
from tensorstash.ingest.like import codec_like, is_as_in
from tensorstash.ingest.static import StaticColumn
from tensorstash.stash.stash import Stash


def carried_column(column: Column, like: Stash, entities: Sequence[Any]) -> StaticColumn:
    """The column for `entities`.

    The entities of `like` come first. The others have a missing value: NaN, code -1 or `fill=`, or else an error.
    """
    names = like.names(column.name) if column.kind == "category" else None
    known, others = as_array(like.static[column.name]), len(entities) - len(like.offsets) + 1
    if not others:
        return StaticColumn(column, known, names)
    value = _missing(column, like)
    if value is None:
        raise DataError(
            f"Static columns of like= have no value for entities that it lacks, such as {entities[len(known)]!r}; "
            f"{column.name!r} is {column.dtype}, which has none for missing. Give static=, or unknown='drop'."
        )
    new = torch.full((others, *column.shape), value, dtype=column.dtype)
    loaded = replace(column, codec=codec_like(column, like))
    more = with_counts(loaded, as_array(new), 0 if column.is_validity else new.numel())
    return StaticColumn(with_more(column, more), np.concatenate([known, as_array(new)]), names)


def values_like(column: Column, like: Stash | None) -> NDArray[Any] | None:
    """The values of the entities of `like` as a column stores them; `None` if it has no such column there."""
    if like is None or not is_as_in(like, column):
        return None
    values = like.static[column.name]
    are_floating = column.dtype.is_floating_point and values.is_floating_point()
    return as_array(values.to(column.dtype)) if are_floating or column.dtype == values.dtype else None


def _missing(column: Column, like: Stash) -> Any:
    """What a missing value of a column is stored as; `None` if its type has none."""
    if column.is_coded:
        return -1 if column.fill is None else like.names(column.name).find(column.fill)
    if column.fill is None and column.dtype.is_floating_point:
        return float("nan")
    return False if column.is_validity else column.fill
