"""`Cast`: batches in another dtype than the one that the stash holds."""

from collections.abc import Mapping

import torch

from tensorstash.errors import SchemaError, unknown


class Cast:
    """Casts spans of a batch, so that columns can be stored and copied to the device in a narrower dtype.

    Args:
        dtypes: the new dtype of each span.

    Raises:
        TypeError: `dtypes` is not a mapping from spans to dtypes. ColumnError: a batch lacks a span.
        SchemaError: a floating span would be cast to integers or booleans.

    Example:
        >>> import numpy as np, torch, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(6, dtype=np.int16)})
        >>> windows = ts.Windows(stash, history=2)
        >>> loader = ts.Loader(windows, batch_size=2, transform=[ts.Cast({"y": torch.float32})])
        >>> next(iter(loader))["y"]
        tensor([[0., 1.],
                [1., 2.]])
    """

    def __init__(self, dtypes: Mapping[str, torch.dtype]) -> None:
        if not isinstance(dtypes, Mapping):
            raise TypeError(f"ts.Cast takes a dtype for each span; got {dtypes!r}. Write {{'<span>': torch.float32}}.")
        self.dtypes = dict(dtypes)
        for name, dtype in self.dtypes.items():
            if not isinstance(dtype, torch.dtype):
                raise TypeError(
                    f"A span is cast to a torch.dtype; {name!r} to {dtype!r}. Write {{{name!r}: torch.float32}}."
                )

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Replace the spans in the batch and return it."""
        for name, dtype in self.dtypes.items():
            if name not in batch:
                raise unknown(name, batch, "the batch", "span")
            if batch[name].dtype.is_floating_point and not dtype.is_floating_point and not dtype.is_complex:
                raise SchemaError(
                    f"A cast keeps values; {name!r} is {batch[name].dtype}, and {dtype} would cut its fractions. Round "
                    "it in a transform of your own."
                )
            batch[name] = batch[name].to(dtype)
        return batch

    def __repr__(self) -> str:
        return f"Cast({self.dtypes})"
