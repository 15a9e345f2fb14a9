"""`Cast`: spans of batches in another dtype than that of the stash."""

from collections.abc import Mapping
from typing import Literal

import torch

from tensorstash.common.checks import one_of, shown
from tensorstash.common.dtypes import one_nan
from tensorstash.errors import SchemaError
from tensorstash.transforms.entries import check_batch, span_of


class Cast:
    """Casts spans of a batch, so that columns can be stored in, or copied to the device in, a narrower dtype.

    Columns that are stored in a narrow dtype are copied as they are and cast on the device. With `on="host"`, wider
    columns are cast down before the copy, with all transforms that come before.

    Args:
        dtypes: a mapping from the name of each span to its new dtype.
        on: `"device"` casts a batch where it is; `"host"` casts it before the copy to the device, and not with
            `resident=True`.

    Attributes:
        runs_on_host: whether it runs before the copy to a device.

    Raises:
        TypeError: `dtypes` is not a mapping from spans to dtypes. ColumnError: a batch lacks a span.
        SchemaError: a floating span would be cast to integers or booleans. ValueError: another `on`.

    Example:
        >>> import numpy as np, torch, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(6, dtype=np.int16)})
        >>> windows = ts.Windows(stash, history=2)
        >>> loader = ts.Loader(windows, batch_size=2, transform=[ts.Cast({"y": torch.float32})])
        >>> next(iter(loader))["y"]
        tensor([[0., 1.],
                [1., 2.]])
    """

    def __init__(self, dtypes: Mapping[str, torch.dtype], *, on: Literal["device", "host"] = "device") -> None:
        if not isinstance(dtypes, Mapping) or not all(isinstance(name, str) for name in dtypes):
            raise TypeError(
                f"dtypes must be a mapping from names of spans to dtypes, got {shown(dtypes)}. Write "
                "{'<span>': torch.float32}."
            )
        self.on = one_of(on, ("device", "host"), "on")
        self.runs_on_host = self.on == "host"
        self.dtypes = dict(dtypes)
        for name, dtype in self.dtypes.items():
            if not isinstance(dtype, torch.dtype):
                raise TypeError(
                    f"dtypes[{name!r}] must be a torch.dtype, got {shown(dtype)}. Write {{{name!r}: torch.float32}}."
                )

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Replace the spans in the batch and return it.

        Args:
            batch: a batch on any device; its tensors stay as they are.

        Raises:
            ColumnError: it lacks a span. SchemaError: a floating span would be cast to integers or booleans.
        """
        check_batch(batch, "ts.Cast")
        for name, dtype in self.dtypes.items():
            span = span_of(batch, name)
            if span.is_floating_point() and not dtype.is_floating_point and not dtype.is_complex:
                raise SchemaError(
                    f"A cast must keep values; {name!r} is {span.dtype}, and {dtype} would cut its fractions. Round it "
                    "in a transform of your own."
                )
            if span.dtype != dtype:
                batch[name] = one_nan(span.to(dtype))
        return batch

    def __repr__(self) -> str:
        return f"Cast({self.dtypes}{', on=' + repr(self.on) if self.on == 'host' else ''})"
