"""`InstanceNorm`: each window normalised by its own history."""

from collections.abc import MutableMapping
from copy import copy
from dataclasses import dataclass, field
from math import inf
from numbers import Real
from typing import Literal, get_args, overload

import torch

from tensorstash.common.checks import at_least, one_of
from tensorstash.common.dtypes import one_nan
from tensorstash.common.text import type_text
from tensorstash.gather.layout import Batch
from tensorstash.transforms.bound import Source, check_source
from tensorstash.transforms.entries import (
    check_batch,
    check_floating,
    check_names,
    check_predictions,
    check_whole,
    span_of,
)
from tensorstash.transforms.observed import (
    Computed,
    Flags,
    change_values,
    computed_in,
    flags_in,
    holds_value,
    which_count,
)

Kind = Literal["standard", "last", "mean"]


@dataclass(frozen=True, init=False)
class InstanceNorm:
    """Removes the level and spread of each window's own history from a batch, and restores them in predictions.

    `kind="standard"` is the normalisation of "Reversible Instance Normalization for Accurate Time-Series Forecasting
    against Distribution Shift" (Kim et al., 2022), without its learned affine map. `kind="mean"` is the scale of DeepAR
    (Salinas et al., 2020) as GluonTS's `MeanScaler` computes it, the mean absolute value of the history.

    Calling it changes a batch in place, on its device, adds `<history>.center` and `<history>.scale`,
    `(batch, 1, ...)`, for `inverse`, and returns the batch. Each number of a pack is normalised separately, and so is
    each row of `ts.each`. NaN and empty slots do not count, and empty slots keep the value that `empty=` gives them. A
    value of `fill=` does not count if the batch has a span of its `ts.is_valid` over the same slots; for a history of
    `ts.each`, whole or by `ts.each` too. A `Loader` finds that span; otherwise call `norm.bind(windows)` first. A
    window without a value in its history stays as it is. A single window must be a batch: `windows[[i]]`.

    If a span reaches into the horizon, as every span of `Windows(stash, history=, horizon=)` does, `rows=` excludes the
    values to be forecast from level and spread.

    Args:
        history: the span from which level and spread are computed.
        others: spans that are shifted and scaled in the same way, such as the target in training. By default none.
        kind: `"standard"`: subtract the mean, divide by the standard deviation; `"last"`: subtract the last value;
            `"mean"`: divide by the mean absolute value, or by 1 where it is 0.
        eps: added to the variance of `"standard"`, so that a constant history can be divided by its spread. By default
            0.00001.
        rows: the number of slots at the start of the span that are the history; `None`: all slots.

    Raises:
        ValueError: a span is named twice. When called: a batch is normalised already, or its shapes do not fit.
        ColumnError: a batch lacks a span. SchemaError: a span holds integers.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"y": [1.0, 3.0, 5.0, 103.0, 105.0]})
        >>> windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 1)})
        >>> norm = ts.InstanceNorm("past", "next", kind="last")
        >>> batch = norm(windows[:])
        >>> batch["past"].tolist(), batch["next"].tolist()
        ([[-2.0, 0.0], [-2.0, 0.0], [-98.0, 0.0]], [[2.0], [98.0], [2.0]])
        >>> norm.inverse(batch["next"], batch).tolist()
        [[5.0], [103.0], [105.0]]
        >>> whole = ts.Windows(stash, history=2, horizon=1)  # one span over past and future
        >>> ts.InstanceNorm("y", kind="last", rows=2)(whole[:])["y"].tolist()
        [[-2.0, 0.0, 2.0], [-2.0, 0.0, 98.0], [-98.0, 0.0, 2.0]]
    """

    history: str
    others: tuple[str, ...]
    kind: Kind
    eps: float
    rows: int | None
    _flags: tuple[Flags, ...] = field(default=(), repr=False, compare=False)
    _computed: Computed = field(default_factory=dict, repr=False, compare=False)

    def __init__(
        self, history: str, *others: str, kind: Kind = "standard", eps: float = 1e-5, rows: int | None = None
    ) -> None:
        kind = one_of(kind, get_args(Kind), "kind")
        check_names((history, *others), "ts.InstanceNorm")
        given: object = eps
        if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < inf:
            raise ValueError(f"eps must be a number > 0, got {eps!r}.")
        rows = None if rows is None else at_least(1, rows, "rows")
        vars(self).update(history=history, others=others, kind=kind, eps=float(eps), rows=rows, _flags=(), _computed={})

    @property
    def whole_windows(self) -> tuple[str, ...]:
        """The spans that must not be packed before it."""
        return (self.history, *self.others)

    def bind(self, windows: Source) -> "InstanceNorm":
        """This transform for batches of windows: for their spans of `ts.is_valid` and of `ts.calendar`.

        A `Loader` calls it; call it yourself for batches of `windows[ids]`.

        Args:
            windows: windows, a mix, or a stash.

        Returns:
            A new transform; this one does not change.

        Example:
            >>> import tensorstash as ts
            >>> columns = {"y": ts.column("y", fill=0.0), "ok": ts.is_valid("y")}
            >>> windows = ts.Windows(ts.load({"y": [1.0, None, 3.0]}, columns), history=3)
            >>> norm = ts.InstanceNorm("y", kind="mean").bind(windows)
            >>> norm(windows[:])["y"].tolist()
            [[0.5, 0.0, 1.5]]
        """
        check_source(windows)
        bound = copy(self)
        vars(bound).update(_flags=flags_in(windows, self.history), _computed=computed_in(windows, self.whole_windows))
        return bound

    def __call__(self, batch: Batch) -> Batch:
        """Normalise a batch in place and return it.

        Args:
            batch: a batch on any device.

        Raises:
            ValueError: the batch is normalised already, or its shapes do not fit. ColumnError: it lacks a span.
            SchemaError: a span holds integers.
        """
        past = self._check(batch)
        held = [holds_value(batch, name, self._computed) for name in self.whole_windows]
        counts = which_count(batch, self.history, self._flags, held[0])
        center, scale = self._statistics(past[:, : self.rows], None if counts is None else counts[:, : self.rows])

        def normalise(span: torch.Tensor) -> None:
            if self.kind != "mean":
                span.sub_(center)
            if self.kind != "last":
                span.div_(scale)
            one_nan(span)

        for name, has_value in zip(self.whole_windows, held):
            change_values(batch[name], has_value, normalise)
        batch[f"{self.history}.center"], batch[f"{self.history}.scale"] = center, scale
        return batch

    @overload
    def inverse(self, values: Batch) -> Batch: ...

    @overload
    def inverse(self, values: torch.Tensor, batch: Batch) -> torch.Tensor: ...

    def inverse(self, values: Batch | torch.Tensor, batch: Batch | None = None) -> Batch | torch.Tensor:
        """Restore the level and spread of each window's history, in a batch in place, or in predictions.

        Args:
            values: a batch that this transform has normalised; or predictions for its windows, `(batch, time, ...)`,
                where integers become floating.
            batch: with predictions, the batch that this transform has normalised; `None` for a batch.

        Returns:
            The batch; or a new tensor of the shape of the predictions, through which gradients flow.

        Raises:
            ValueError: the predictions have another shape, or the batch has not been normalised.

        Example:
            >>> import torch, tensorstash as ts
            >>> norm = ts.InstanceNorm("past", kind="last")
            >>> batch = norm({"past": torch.tensor([[1.0, 3.0], [10.0, 50.0]])})
            >>> forecast = torch.zeros(2, 3)  # three slots that stay at the last value
            >>> norm.inverse(forecast, batch).tolist()
            [[3.0, 3.0, 3.0], [50.0, 50.0, 50.0]]
        """
        if not isinstance(values, MutableMapping):
            if batch is None:
                raise TypeError("Predictions need the batch of their windows. Write norm.inverse(values, batch).")
            return self._restored(values, batch)
        if batch is not None:
            raise TypeError(f"inverse(batch) takes nothing else, got {type_text(batch)}. Leave it out.")
        self._own(values, "center")
        spans = {name: self._restored(span_of(values, name), values) for name in self.whole_windows if name in values}
        for name, restored in spans.items():
            held = holds_value(values, name, self._computed)
            values[name].copy_(restored if held is None else torch.where(held, restored, values[name]))
        del values[f"{self.history}.center"], values[f"{self.history}.scale"]
        return values

    def _restored(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        check_predictions(values)
        check_batch(batch, "An InstanceNorm")
        center, scale = (self._own(batch, which) for which in ("center", "scale"))
        if values.ndim != center.ndim or len(values) != len(center) or values.shape[2:] != center.shape[2:]:
            expected = ", ".join(map(str, (len(center), "time", *center.shape[2:])))
            raise ValueError(f"Predictions for this batch must have the shape ({expected}), got {tuple(values.shape)}.")
        return one_nan(values * scale + center)

    def _own(self, batch: Batch, which: str) -> torch.Tensor:
        """The entry `<history>.<which>` that this transform has added to a batch."""
        name = f"{self.history}.{which}"
        if name not in batch:
            raise ValueError(
                f"The batch must be normalised by this transform; it has no {name!r}. Call the transform on it first."
            )
        entry = span_of(batch, name)
        if entry.ndim < 2:
            raise ValueError(
                f"{name!r} must be (batch, 1, ...), as this transform has made it, got {tuple(entry.shape)}."
            )
        return entry

    def _check(self, batch: Batch) -> torch.Tensor:
        """The history of a batch; raises an error if the batch cannot be normalised."""
        check_batch(batch, "An InstanceNorm")
        check_whole(batch, self.whole_windows, "InstanceNorm")
        if f"{self.history}.center" in batch:
            raise ValueError(
                f"A batch must be normalised once; it has {self.history + '.center'!r} already. Take a fresh batch."
            )
        for name in self.whole_windows:
            span, past = span_of(batch, name), span_of(batch, self.history)
            check_floating(span, name, "normalised")
            if span.ndim < 2:
                raise ValueError(f"A normalised span must be (batch, time, ...); {name!r} is {tuple(span.shape)}.")
            if len(span) != len(past) or span.shape[2:] != past.shape[2:]:
                raise ValueError(
                    f"All spans of an InstanceNorm must be of one column or ts.each; {self.history!r} is "
                    f"{tuple(past.shape)}, {name!r} is {tuple(span.shape)}. Make one InstanceNorm for each."
                )
        if self.rows is not None and self.rows > past.shape[1]:
            raise ValueError(f"rows must be <= {past.shape[1]}, the length of {self.history!r}, got {self.rows}.")
        return past

    def _statistics(self, past: torch.Tensor, counts: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Centre and scale of the values that count, `(batch, 1, ...)`, computed in float32 or wider."""
        wide = past.float() if past.itemsize < 4 else past
        has_value = ~wide.isnan()
        if counts is not None:
            has_value &= counts
        if self.kind == "last":
            step = torch.arange(1, wide.shape[1] + 1, device=wide.device).view(-1, *[1] * (wide.ndim - 2))
            last = (has_value * step).amax(1, keepdim=True)  # counted from 1; 0 where a window has no value
            center = wide.gather(1, (last - 1).clamp(min=0)).masked_fill(last == 0, 0)
            return center.to(past.dtype), torch.ones_like(center, dtype=past.dtype)
        count = has_value.sum(1, keepdim=True)
        divisor = count.clamp(min=1)
        if self.kind == "mean":
            scale = (wide.abs().masked_fill_(~has_value, 0).sum(1, keepdim=True) / divisor).to(past.dtype)
            return torch.zeros_like(scale), scale.masked_fill_(scale == 0, 1)
        center = wide.masked_fill(~has_value, 0).sum(1, keepdim=True) / divisor
        # deviations from the mean keep a spread exact that is small beside the level
        deviation = (wide - center).masked_fill_(~has_value, 0)
        scale = (deviation.square_().sum(1, keepdim=True) / divisor + self.eps).sqrt()
        return center.to(past.dtype), scale.masked_fill(count == 0, 1).to(past.dtype)
