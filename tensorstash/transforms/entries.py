"""The entries of a batch that transforms read and write, and the checks of them."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping

import torch

from tensorstash.common.checks import shown
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError, unknown
from tensorstash.stash.scaled import is_scaled, was_scaled


def check_batch(batch: object, what: str) -> None:
    """Raise `TypeError` unless `batch` is a dict; `what` names the transform."""
    if not isinstance(batch, MutableMapping):
        raise TypeError(f"{what} takes a batch, a dict of tensors, got {type_text(batch)}. Write {{'<span>': values}}.")


def span_of(batch: Mapping[str, object], name: str) -> torch.Tensor:
    """The entry with a name; raises `ColumnError` if it does not exist, and `TypeError` if it is not a tensor."""
    if name not in batch:
        raise unknown(name, batch, "the batch", "span")
    entry = batch[name]
    if not isinstance(entry, torch.Tensor):
        raise TypeError(f"A span must be a tensor; {name!r} is {type_text(entry)}. Use torch.as_tensor.")
    return entry


def spans_in_batch(batch: Mapping[str, object], spans: Iterable[str]) -> list[str]:
    """The spans of a scaler that a batch has; raises `ValueError` if there are none."""
    if known := [name for name in spans if name in batch]:
        return known
    raise ValueError(
        f"The batch must have a span of the scaler, {', '.join(map(repr, spans))}; it has "
        f"{', '.join(map(repr, batch)) or 'nothing'}. Fit it on windows with the spans of the batch."
    )


def check_predictions(values: object) -> None:
    """Raise `TypeError` unless predictions are a tensor of real numbers."""
    if not isinstance(values, torch.Tensor) or values.is_complex():
        got = values.dtype if isinstance(values, torch.Tensor) else type_text(values)
        raise TypeError(f"Predictions must be a tensor of real numbers, got {got}.")


def check_numbers(given: Mapping[str, object]) -> None:
    """Raise `TypeError` unless entries of a batch that are given beside predictions are tensors, or `None`."""
    for what, numbers in given.items():
        if numbers is not None and not isinstance(numbers, torch.Tensor):
            raise TypeError(f"{what} must be a tensor of integers, got {shown(numbers)}. Take batch[{what!r}].")


def check_pack(values: torch.Tensor, pack: tuple[int, ...], what: str) -> None:
    """Raise `ValueError` unless the last dimensions of a tensor are those of a pack, after at least one other."""
    shape = tuple(values.shape)
    if len(shape) <= len(pack):
        raise ValueError(f"{what!r} must have windows or slots, ({', '.join(['time', *map(str, pack)])}), got {shape}.")
    if shape[len(shape) - len(pack) :] != pack:
        raise ValueError(f"The last dimensions of {what!r} must be {pack}, got {shape}.")


def check_prediction_shape(values: torch.Tensor, pack: tuple[int, ...], column: str) -> None:
    """Raise `ValueError` unless predictions are `(batch, ...)`, for a pack `(batch, time, *pack)`."""
    check_pack(values, pack, column)
    if pack and values.ndim < len(pack) + 2:  # (batch, time) could be as wide as the pack
        raise ValueError(
            f"Predictions of the pack {column!r} must be (batch, time, *pack), got {tuple(values.shape)}. For one step "
            "write values[:, None]."
        )


def check_scalable(batch: Mapping[str, torch.Tensor], name: str, column: str, *, inverse: bool) -> None:
    """Raise an error unless a scaler can scale a span of a batch, or scale it back."""
    span = batch[name]
    if f"{name}.segment" in batch:
        raise ValueError(f"A scaler must see whole windows; {name!r} is packed in rows. Scale before ts.PackSequences.")
    if not span.dtype.is_floating_point:
        raise SchemaError(
            f"A scaled span must be floating; {name!r} is {span.dtype}. Put ts.Cast({{{name!r}: torch.float32}}) "
            "before the scaler."
        )
    if not inverse and is_scaled(span):
        raise ValueError(f"A span must be scaled once; {name!r} is scaled already. Leave the scaler out.")
    if inverse and not was_scaled(span):
        raise ValueError(
            f"Only a span that is scaled can be scaled back; {name!r} is not, or it is a copy, which is not "
            f"marked. Write scaler.inverse(batch[{name!r}], {column!r}) for the values of a copy."
        )


def observed_of(batch: Mapping[str, object], name: str) -> torch.Tensor | None:
    """Which slots of a span have a row, with as many dimensions as the span has; `None`: all slots."""
    flags = f"{name}.observed"
    if flags not in batch:
        return None
    span, observed = span_of(batch, name), span_of(batch, flags)
    if observed.dtype != torch.bool or observed.shape != span.shape[: observed.ndim]:
        shape = tuple(span.shape[: max(1, observed.ndim)])
        raise ValueError(f"{flags!r} must be {shape} bool, got {tuple(observed.shape)} {observed.dtype}.")
    return observed.view(*observed.shape, *[1] * (span.ndim - observed.ndim))


def change_rows(span: torch.Tensor, has_row: torch.Tensor | None, change: Callable[[torch.Tensor], object]) -> None:
    """Let a function change a span in place, then restore the values of slots without a row."""
    # on a device a look at the flags would wait for all queued work
    if has_row is None or (has_row.is_cpu and has_row.all()):
        change(span)
        return
    before = span.clone()
    change(span)
    span.copy_(torch.where(has_row, span, before))
