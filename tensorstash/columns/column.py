"""A column: what it is, and what a load counted in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tensorstash.columns.codec import PLAIN, Codec, Given, Hashed, Validity
from tensorstash.common.dtypes import from_bfloat16

Kind = Literal["number", "category", "hashed", "timestamp", "date", "time", "duration"]
Unit = Literal["s", "ms", "us", "ns", "d"]
Number = float | int | bool
Fill = Number | str


def fits(value: Fill, dtype: torch.dtype) -> bool:
    """Whether a value is a number in the range of a dtype, and an integer where the dtype is one."""
    if isinstance(value, str):
        return False
    if dtype.is_floating_point:
        return not torch.finfo(dtype).max < abs(value) < math.inf  # NaN is not in between either
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return value == value and low <= value <= high and value == int(value)  # noqa: PLR0124  NaN is no integer


@dataclass(frozen=True, slots=True)
class Column:
    """What a column is: in a plan, in a load, and in a stash, whose `stash.about(name)` returns it with its counts.

    Example:
        >>> import tensorstash as ts
        >>> about = ts.load({"y": [1.5, None, 0.5]}).about("y")
        >>> about.kind, about.missing, about.low, about.high
        ('number', 1, 0.5, 1.5)
    """

    name: str
    """The column's name in the stash."""
    members: tuple[str, ...]
    """The source columns or expressions it is made of; several in a pack."""
    dtype: torch.dtype
    """The type of its tensor."""
    shape: tuple[int, ...] = ()
    """The shape of one row."""
    kind: Kind = "number"
    """`"number"` (booleans too), `"category"` (codes of a vocabulary), `"hashed"`, or the kind of a time."""
    unit: Unit | None = None
    """The unit of a time: `"s"`, `"ms"`, `"us"`, `"ns"` or `"d"`."""
    zone: str | None = None
    """The time zone of timestamps."""
    fill: Fill | None = None
    """The value of `fill=`, which replaces missing values of the source."""
    empty: Fill | None = None
    """The value of `empty=`, for slots of windows without a row; `None`: `fill`."""
    calendar: tuple[tuple[str, str], ...] = ()
    """The field and form of each member that `ts.calendar` made."""
    is_scaled: bool = False
    """Whether `Scaler.transform` has scaled it."""
    nulls: int = 0
    """Nulls in the rows of the source; a plan has counted nothing yet."""
    missing: int = 0
    """NaN or code -1 in the stash, without values replaced by `fill=`; in a static column counted once per entity."""
    unknown: int | None = None
    """Values that are not in the given vocabulary, counted like `missing`; `None` if no vocabulary was given."""
    low: Number | None = None
    """The least value or code; `None` if all are missing."""
    high: Number | None = None
    """The greatest value or code."""
    # how values of the source are decoded; in a stash it is `Validity`, `Hashed` or `Plain`
    codec: Codec = field(default=PLAIN, repr=False)
    digits: bool = field(default=False, repr=False)  # whether decimals of the source must keep all their digits
    packed: bool = field(default=False, repr=False)  # whether it was asked for as a list, perhaps of one source column

    @property
    def is_coded(self) -> bool:
        """Whether it holds codes, with -1 for a missing value."""
        return self.kind in ("category", "hashed")

    @property
    def is_validity(self) -> bool:
        """Whether `ts.is_valid` made it."""
        return isinstance(self.codec, Validity)

    @property
    def buckets(self) -> int | None:
        """The number of buckets of hashed codes; `None` for other columns, and where an older file lacks it."""
        return self.codec.buckets if isinstance(self.codec, Hashed) else None

    @property
    def given_vocabulary(self) -> Sequence[Any] | None:
        """The vocabulary that the caller of a load gave."""
        return self.codec.vocabulary if isinstance(self.codec, Given) else None

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape)


# what a load counts in the values of a column: fields of `Column`, which says what each is
COUNTS = ("nulls", "missing", "unknown", "low", "high")
EXTREMES: dict[str, Any] = {"low": min, "high": max}  # those that are not sums


def with_counts(column: Column, values: NDArray[Any], nulls: int = 0) -> Column:
    """The column with the counts of these values, as its tensor holds them, bfloat16 as its bits."""
    known, low, high, missing = column.given_vocabulary, None, None, 0
    unknown = None if known is None else int(np.count_nonzero(values == len(known)))
    if values.size:
        missing, low, high = _range(values, column)
    return replace(column, nulls=nulls, missing=missing, unknown=unknown, low=low, high=high)


def _range(values: NDArray[Any], column: Column) -> tuple[int, Number | None, Number | None]:
    """How many values are missing, and the least and the greatest of the others, in as few passes as possible."""
    if column.dtype == torch.bfloat16:
        values = from_bfloat16(values)
    elif column.dtype == torch.float16:
        values = values.astype(np.float32)  # processors cannot compare halves
    low, high, missing = values.min(), values.max(), 0
    if column.is_coded and low < 0:
        missing = int(np.count_nonzero(values < 0))
        low = values.view(np.uint32).min()  # where -1 is the greatest
    elif low != low:  # noqa: PLR0124  a NaN anywhere makes the minimum one
        missing = int(np.count_nonzero(values != values))  # noqa: PLR0124
        low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    return (missing, None, None) if missing == values.size else (missing, low.item(), high.item())


def with_more(column: Column, other: Column) -> Column:
    """The column with the counts of its values and of other ones of it together; a sum is known if both are."""
    both = {name: (getattr(column, name), getattr(other, name)) for name in COUNTS}
    more: dict[str, Any] = {name: None if None in values else sum(values) for name, values in both.items()}
    for name, extreme in EXTREMES.items():  # of values that are all missing there is none
        more[name] = extreme((value for value in both[name] if value is not None), default=None)
    return replace(column, **more)
