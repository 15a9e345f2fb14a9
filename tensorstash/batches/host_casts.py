"""Casts that the host does while it writes a batch into staging memory, so that fewer bytes are copied."""

from collections.abc import Sequence
from typing import Any

import torch

from tensorstash.errors import unknown
from tensorstash.transforms.cast import Cast
from tensorstash.windows.windows import Windows


def casts_on_host(transforms: Sequence[Any], own: Windows) -> dict[str, torch.dtype]:
    """The entries that `ts.Cast(..., on="host")` at the beginning of the transforms casts, and their new dtypes."""
    casts: dict[str, torch.dtype] = {}
    held = {span.name: own.stash[span.column].dtype for span in own.spans}
    held |= {name: tensor.dtype for name, tensor in own.stash.static.items()}
    first: Any = None  # of the transforms that run behind the copy
    for transform in transforms:
        if not on_host(transform):
            first = transform if first is None else first
            continue
        if first is not None:
            raise ValueError(
                f"A cast on the host happens before the copy, so it is the first transform; {transform!r} comes behind "
                f"{first!r}. Put it first."
            )
        for name, dtype in transform.dtypes.items():
            if name not in held:
                raise unknown(name, held, "the batch", "span")
            transform.check(name, held[name])
            if name in casts or dtype.itemsize >= held[name].itemsize:
                raise ValueError(
                    f"A cast on the host makes the copy to the device smaller, once for each span; {name!r} would be "
                    f"cast from {casts.get(name, held[name])} to {dtype}. Leave out on='host'."
                )
            casts[name] = dtype
    return casts


def on_host(transform: object) -> bool:
    """Whether a transform is such a cast."""
    return isinstance(transform, Cast) and transform.on == "host"
