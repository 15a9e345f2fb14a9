"""Which values of a column are missing: NaN, code -1, or filled by `fill=` and marked by a column of `ts.is_valid`."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from tensorstash.columns.column import Column
from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.stash.row_statistics import Values

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash


def values_of(stash: "Stash", name: str) -> Values:
    """The numbers of a column, and a mask that is false where `fill=` stands for a missing value."""
    is_static = stash.about(name) in stash.info.static
    tensor = stash.static[name] if is_static else stash[name]
    return Values(tensor, _validity(stash, name, tensor, is_static=is_static))


def missing_rows(stash: "Stash", name: str) -> Callable[[slice | Int64s], Bools] | None:
    """A function from rows, a slice or their numbers, to whether each has a missing value; in a pack, in any member.

    `None` if the column had none when loaded: it is not read, so NaN written into it later is not noticed.
    """
    values = values_of(stash, name)
    if values.valid is None and not stash.about(name).missing:
        return None

    def missing(rows: slice | Int64s) -> Bools:
        if values.valid is not None:
            is_missing = ~values.valid[rows]
        else:
            numbers = values.numbers[rows]
            is_missing = torch.isnan(numbers) if numbers.dtype.is_floating_point else numbers < 0
        in_row: Bools = (is_missing.flatten(1).any(1) if is_missing.ndim > 1 else is_missing).numpy()
        return in_row

    return missing


def _validity(stash: "Stash", name: str, tensor: torch.Tensor, *, is_static: bool) -> torch.Tensor | None:
    """False where `fill=` stands for a missing value, in the shape of the column; `None` without a mask."""
    info = stash.about(name)
    if info.fill is None:
        return None
    columns, tensors = (stash.info.static, stash.static) if is_static else (stash.info.columns, stash)
    items, valid = math.prod(tensor.shape[1:]), None
    for mask in columns:
        if not mask.is_validity or (mask.low is True and not is_static):
            continue
        flags = tensors[mask.name]
        if mask.members == info.members:  # as they are: a copy could be as large as the column
            return flags.view(tensor.shape)
        places = torch.tensor(places_of_flags(info, mask, items))
        if (places >= 0).any():
            flags = flags[..., None].flatten(1)[:, places.clamp(min=0)] | (places < 0)
            valid = flags if valid is None else valid & flags
    return None if valid is None else valid.view(tensor.shape)


def places_of_flags(about: Column, mask: Column, items: int) -> tuple[int, ...]:
    """Of each of the `items` numbers in a row of a column the place of its flag in a mask, or -1."""
    if mask.members == about.members:  # a column of lists has one member
        return (*range(items),)
    if len(about.members) != items:
        return (-1,) * items
    return tuple(mask.members.index(one) if one in mask.members else -1 for one in about.members)
