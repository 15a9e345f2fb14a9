"""What `print` and a notebook show of a scaler."""

from collections.abc import Mapping

import torch


def constants_by_column(
    center: Mapping[str, torch.Tensor], scale: Mapping[str, torch.Tensor], spans: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    """The name of each column, its center, its scale and its spans, as text."""
    of_column = {name: ", ".join(span for span, column in spans.items() if column == name) for name in center}
    return [(name, _summary(center[name]), _summary(scale[name]), of_column[name]) for name in center]


def _summary(values: torch.Tensor) -> str:
    if values.numel() <= 4:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    return f"{values.min().item():.4g} to {values.max().item():.4g}"
