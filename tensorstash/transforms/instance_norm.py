"""Instance normalisation: each window by its own history."""

from dataclasses import dataclass

import torch

from tensorstash.common.checks import at_least
from tensorstash.errors import SchemaError, unknown

_KINDS = ("standard", "last")

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, init=False)
class InstanceNorm:
    """Takes the level, and the spread, of each window's history out of it, and puts them back into predictions.

    As the normalisation in "Reversible Instance Normalization for Accurate Time-Series Forecasting against Distribution
    Shift" (Kim et al., 2022), without its learned affine map. Calling it changes a batch in place, in the memory and on
    the device of the batch, adds `<history>.center` and `<history>.scale`, `(batch, 1, ...)`, for `inverse` and `undo`,
    and returns it. Each number of a pack is normalised for itself.

    NaN and empty slots count for nothing; a window without a value in its history keeps its level and spread. It is for
    batches: of a single window, `windows[[i]]` makes one.

    A transform does not know where the horizon begins. Where a span reaches into it, as each one does that
    `Windows(stash, history=, horizon=)` makes, `rows=` keeps what is to be forecast out of level and spread.

    Args:
        history: the span that level and spread are taken from.
        others: spans that are shifted and scaled likewise, as the target in training; those that a batch lacks are left
            out.
        kind: `"standard"`: mean and standard deviation; `"last"`: the last value, and no spread.
        eps: added to the variance, so that a constant history can be divided by it.
        rows: how many of the first slots of the span are the history; `None`: all of them.

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
    kind: str
    eps: float
    rows: int | None

    def __init__(
        self, history: str, *others: str, kind: str = "standard", eps: float = 1e-5, rows: int | None = None
    ) -> None:
        if kind not in _KINDS:
            raise ValueError(f"kind= is one of {', '.join(map(repr, _KINDS))}; got {kind!r}.")
        if not eps > 0:
            raise ValueError(f"eps= is above 0; got {eps}.")
        rows = None if rows is None else at_least(1, rows, "rows")
        own = {"history": history, "others": others, "kind": kind, "eps": eps, "rows": rows}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def __call__(self, batch: Batch) -> Batch:
        """Normalise a batch in place and return it."""
        if self.history not in batch:
            raise unknown(self.history, batch, "the batch", "span")
        if f"{self.history}.center" in batch:
            raise ValueError(
                f"A batch is normalised once; this one has {self.history + '.center'!r} already. Take a fresh batch."
            )
        past = batch[self.history]
        spans = [batch[name] for name in (self.history, *self.others) if name in batch]
        for name in (self.history, *self.others):
            if name in batch and not batch[name].dtype.is_floating_point:
                raise SchemaError(
                    f"A batch is normalised in place, in floating point; {name!r} is {batch[name].dtype}. Put "
                    f"ts.Cast({{{name!r}: torch.float32}}) before."
                )
            if name in batch and batch[name].shape[2:] != past.shape[2:]:
                raise ValueError(
                    f"The spans of one instance normalisation are of one column; {self.history!r} is "
                    f"{tuple(past.shape)}, {name!r} {tuple(batch[name].shape)}. Make a second one."
                )
        if self.rows is not None and self.rows > past.shape[1]:
            raise ValueError(f"rows= are of the span {self.history!r}, which has {past.shape[1]}; got {self.rows}.")
        observed = batch.get(f"{self.history}.observed")
        judged = slice(self.rows)
        center, scale = self._statistics(past[:, judged], None if observed is None else observed[:, judged])
        for span in spans:
            span.sub_(center)
            if self.kind == "standard":
                span.div_(scale)
        batch[f"{self.history}.center"], batch[f"{self.history}.scale"] = center, scale
        return batch

    def inverse(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Predictions for the windows of a normalised batch, `(batch, time, ...)`, on the level of their history.

        A fresh tensor, through which gradients flow.
        """
        name = f"{self.history}.center"
        if name not in batch:
            raise ValueError(f"Level and spread are in the batch once it is normalised; this one has no {name!r}.")
        return values * batch[f"{self.history}.scale"] + batch[name]

    def undo(self, batch: Batch) -> Batch:
        """Put level and spread back into the spans of a normalised batch, in place, and return it."""
        for name in (self.history, *self.others):
            if name in batch:
                batch[name].copy_(self.inverse(batch[name], batch))
        del batch[f"{self.history}.center"], batch[f"{self.history}.scale"]
        return batch

    def _statistics(self, past: torch.Tensor, observed: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Centre and scale, `(batch, 1, ...)`, computed in float32 at least."""
        wide = past.float() if past.itemsize < 4 else past
        there = ~wide.isnan()
        if observed is not None:
            there &= observed.view(*observed.shape, *[1] * (past.ndim - 2))
        if self.kind == "last":
            step = torch.arange(1, past.shape[1] + 1, device=past.device).view(-1, *[1] * (past.ndim - 2))
            last = (there * step).amax(1, keepdim=True)
            center = wide.gather(1, (last - 1).clamp(min=0)).masked_fill(last == 0, 0)
            return center.to(past.dtype), torch.ones_like(center, dtype=past.dtype)
        count = there.sum(1, keepdim=True)
        some = count.clamp(min=1)
        center = wide.masked_fill(~there, 0).sum(1, keepdim=True) / some
        # around the mean that was found, so that what is small beside it stays exact
        apart = (wide - center).masked_fill_(~there, 0)
        scale = (apart.square_().sum(1, keepdim=True) / some + self.eps).sqrt()
        return center.to(past.dtype), scale.masked_fill(count == 0, 1).to(past.dtype)
