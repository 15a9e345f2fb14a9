"""Which values of a column are missing: NaN, code -1, or filled by `fill=` and marked by a column of `ts.is_valid`."""

from collections.abc import Callable

import torch

from tensorstash.common.dtypes import Bools, Int64s
from tensorstash.stash.header import StashLike
from tensorstash.stash.moments import Values


def values_of(stash: StashLike, name: str) -> Values:
    """The numbers of a column, and a mask that is false where `fill=` stands for a missing value."""
    is_static = stash.about(name) in stash.info.static
    tensor = stash.static[name] if is_static else stash[name]
    return Values(tensor, _validity(stash, name, tensor, is_static=is_static))


def missing_rows(stash: StashLike, name: str) -> Callable[[slice | Int64s], Bools] | None:
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


def _validity(stash: StashLike, name: str, tensor: torch.Tensor, *, is_static: bool) -> torch.Tensor | None:
    """False where `fill=` stands for a missing value, in the shape of the column; `None` without a mask."""
    info = stash.about(name)
    if info.fill is None:
        return None
    columns, tensors = (stash.info.static, stash.static) if is_static else (stash.info.columns, stash)
    members: dict[str, torch.Tensor] = {}
    for mask in columns:
        if mask.is_validity and (is_static or mask.low is not True):
            valid = tensors[mask.name]
            if mask.members == info.members:
                return valid.view(tensor.shape)
            parts = [valid.flatten()] if len(mask.members) == 1 else valid.unbind(1)
            members.update(zip(mask.members, parts))
    if members.keys().isdisjoint(info.members):
        return None
    whole = torch.ones(len(tensor), dtype=torch.bool)
    return torch.stack([members.get(member, whole) for member in info.members], 1).view(tensor.shape)
