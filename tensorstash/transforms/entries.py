"""The entries of a batch that transforms read and write, and the checks of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence

import torch

from tensorstash.common.checks import shown
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError, unknown


def check_names(names: Sequence[str], what: str) -> None:
    """Raise an error unless these are names of different spans; `what` names the transform."""
    if odd := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"{what} takes names of spans, got {shown(odd[0])}. Write {what}('past', 'target').")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"A span must be named once, got {twice[0]!r} twice.")


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


def check_pack(values: torch.Tensor, pack: tuple[int, ...], what: str) -> None:
    """Raise `ValueError` unless the last dimensions of a tensor are those of a pack, after at least one other."""
    shape = tuple(values.shape)
    if len(shape) <= len(pack) or shape[len(shape) - len(pack) :] != pack:
        raise ValueError(f"The last dimensions of {what!r} must be {pack}, after windows or slots, got {shape}.")


def check_predictions_of(values: torch.Tensor, pack: tuple[int, ...], column: str) -> None:
    """Raise `ValueError` unless predictions are `(batch, ...)`, for a pack `(batch, time, *pack)`."""
    check_pack(values, pack, column)
    if pack and values.ndim < len(pack) + 2:  # (batch, time) could be as wide as the pack
        raise ValueError(
            f"Predictions of the pack {column!r} must be (batch, time, *pack), got {tuple(values.shape)}. For one step "
            "write values[:, None]."
        )


def check_floating(span: torch.Tensor, name: str, what: str) -> None:
    """Raise `SchemaError` for a span of integers; `what` is what would be done to it."""
    if not span.dtype.is_floating_point:
        raise SchemaError(
            f"A {what} span must be floating; {name!r} is {span.dtype}. Put ts.Cast({{{name!r}: torch.float32}}) "
            "before it."
        )


def check_whole(batch: Mapping[str, object], names: Iterable[str], what: str) -> None:
    """Raise `ValueError` if a span is packed, so that its windows share rows; `what` names the transform."""
    for name in names:
        if f"{name}.offsets" in batch or f"{name}.segment" in batch:
            raise ValueError(
                f"{what} must see whole windows; {name!r} is packed before it. Put it before ts.PackSequences."
            )
