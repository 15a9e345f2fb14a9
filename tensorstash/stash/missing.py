"""Which rows of a column have no value: NaN in floating columns, code -1 in columns of codes."""

import torch

from tensorstash.common.dtypes import Bools
from tensorstash.stash.protocol import StashLike


def missing_rows(stash: StashLike, name: str, rows: slice) -> Bools | None:
    """Whether each of the rows has a missing value, in a pack any; `None` where the column had none when it was loaded.

    Then the column is not looked at, so NaN written into it later is not seen.
    """
    if not stash.about(name).missing:
        return None
    values = stash[name][rows]
    found = torch.isnan(values) if values.dtype.is_floating_point else values < 0
    missing: Bools = (found.flatten(1).any(1) if found.ndim > 1 else found).numpy()
    return missing
