"""What a `Scaler` prints: numbers, and the warning about those that are not from a group's own data."""

from collections.abc import Sequence
from typing import Any

import torch

from tensorstash.common.dtypes import Int64s
from tensorstash.transforms.fitting import Doubt

_NAMED = 3  # entities or columns named in a warning
_LISTED = 4  # numbers that are listed; of more the smallest and the largest


def summary(values: torch.Tensor) -> str:
    """A few numbers, or the smallest and the largest of more."""
    if values.numel() <= _LISTED:
        return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())
    low, high = (f"{value.item():.4g}" for value in values.aminmax())
    return low if low == high else f"{low} to {high}"


def doubts_text(doubts: list[Doubt], names: Sequence[Any], by: str | None) -> str:
    """The warning that names the groups whose centre or scale is not from their own data; `names` are theirs."""
    many, texts = "entities" if by == "entity" else "codes", []
    for text in dict.fromkeys(text for text, *_ in doubts):
        places = [
            repr(name) + ("" if by is None else f" in {_groups(which, names, many)}")
            for other, name, which in doubts
            if other == text
        ]
        more = f" and {len(places) - _NAMED} more columns" if len(places) > _NAMED else ""
        texts.append(f"{text}: {', '.join(places[:_NAMED])}{more}.")
    return " ".join(texts)


def _groups(which: Int64s, names: Sequence[Any], many: str) -> str:
    some = ", ".join(repr(names[k]) for k in which[:_NAMED])
    return f"{len(which):,} of {len(names):,} {many} ({some}{', ...' if len(which) > _NAMED else ''})"
