"""The entries of a batch that transforms take."""

from collections.abc import Callable, Mapping, MutableMapping

import torch

from tensorstash.errors import unknown


def check_batch(batch: object, what: str) -> None:
    """Raise `TypeError` for what is no batch; `what` names the transform."""
    if not isinstance(batch, MutableMapping):
        raise TypeError(
            f"{what} takes a batch, a dict of tensors, got a {type(batch).__name__}. Write {{'<span>': values}}."
        )


def span_of(batch: Mapping[str, object], name: str) -> torch.Tensor:
    """The entry with that name: `ColumnError` if there is none, `TypeError` if it is no tensor."""
    if name not in batch:
        raise unknown(name, batch, "the batch", "span")
    entry = batch[name]
    if not isinstance(entry, torch.Tensor):
        raise TypeError(f"A span must be a tensor; {name!r} is a {type(entry).__name__}. Use torch.as_tensor.")
    return entry


def check_predictions(values: object) -> None:
    """Raise `TypeError` for what is no tensor of real numbers."""
    if not isinstance(values, torch.Tensor) or values.is_complex():
        got = values.dtype if isinstance(values, torch.Tensor) else f"a {type(values).__name__}"
        raise TypeError(f"Predictions must be a tensor of real numbers, got {got}.")


def check_pack(values: torch.Tensor, pack: tuple[int, ...], what: str) -> None:
    """Raise `ValueError` unless a tensor has the dimensions of a pack behind others."""
    shape = tuple(values.shape)
    if len(shape) <= len(pack):
        raise ValueError(f"{what!r} must have windows or slots, ({', '.join(['time', *map(str, pack)])}), got {shape}.")
    if shape[len(shape) - len(pack) :] != pack:
        raise ValueError(f"The last dimensions of {what!r} must be {pack}, got {shape}.")


def observed_of(batch: Mapping[str, object], name: str) -> torch.Tensor | None:
    """Which slots of a span have a row, with as many dimensions as the span; `None`: all of them."""
    flags = f"{name}.observed"
    if flags not in batch:
        return None
    span, observed = span_of(batch, name), span_of(batch, flags)
    if observed.dtype != torch.bool or observed.shape != span.shape[: observed.ndim]:
        shape = tuple(span.shape[: max(1, observed.ndim)])
        raise ValueError(f"{flags!r} must be {shape} bool, got {tuple(observed.shape)} {observed.dtype}.")
    return observed.view(*observed.shape, *[1] * (span.ndim - observed.ndim))


def change_rows(span: torch.Tensor, has_row: torch.Tensor | None, change: Callable[[torch.Tensor], object]) -> None:
    """Let a function write into a span, whose slots without a row keep their values."""
    before = None if has_row is None else span.clone()
    change(span)
    if has_row is not None and before is not None:
        span.copy_(torch.where(has_row, span, before))
