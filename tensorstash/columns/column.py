"""A column of a stash, resolved against the schema of its source."""

import math
import sys
from dataclasses import dataclass
from typing import Literal

import torch

from tensorstash.columns.codec import PLAIN, Codec, Given

Kind = Literal["number", "category", "hashed", "timestamp", "date", "time", "duration"]
Number = float | int | bool
Fill = Number | str


def fits(value: Number, dtype: torch.dtype) -> bool:
    """Whether a tensor of this dtype can hold a number, apart from the rounding of floating dtypes."""
    if dtype.is_floating_point and abs(value) <= sys.float_info.max:
        return bool(torch.tensor(float(value), dtype=torch.float64).to(dtype).isfinite())
    if dtype.is_floating_point:
        return value != value or abs(value) == math.inf  # noqa: PLR0124
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return value == value and low <= value <= high and value == int(value)  # noqa: PLR0124  NaN is no integer


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stash, resolved against the schema of its source."""

    name: str
    members: tuple[str, ...]  # its source columns
    dtype: torch.dtype
    shape: tuple[int, ...] = ()  # of one row
    kind: Kind = "number"
    unit: str | None = None  # "s", "ms", "us", "ns", or "d" where the kind is a time
    zone: str | None = None
    fill: Fill | None = None
    codec: Codec = PLAIN
    bits: bool = False  # whether the source holds bfloat16, as the bits of uint16
    digits: bool = False  # whether decimals of the source must keep all their digits
    empty: Fill | None = None  # the value of slots without a row; `None`: `fill`
    calendar: tuple[tuple[str, str], ...] = ()  # the field and form of each member that `ts.calendar` made

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes, with -1 for a missing value."""
        return self.kind in ("category", "hashed")

    @property
    def vocabulary(self) -> tuple[str, ...] | tuple[int, ...] | None:
        """The given vocabulary."""
        return self.codec.vocabulary if isinstance(self.codec, Given) else None

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape)
