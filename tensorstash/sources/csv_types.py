"""The type of a CSV column: the first of a few types that fits all of its texts."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

    from tensorstash.sources.csv_file import Csv

INTEGERS = pa.int64()
LARGE_INTEGERS = pa.decimal128(38)  # Arrow has no integers of 128 bits
FLOATS = pa.float64()
TIMES = tuple(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("ns", "us"))
TEXT = pa.large_string()
NO_VALUES = pa.null()

SAMPLE = 10_000  # distinct texts that tell what a column of mixed texts is meant to be
_TYPES = (pa.bool_(), INTEGERS, LARGE_INTEGERS, FLOATS, *TIMES)
_BOOLEANS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}


class MisfitError(Exception):
    """A text is no value of the type of its column."""


@dataclass(slots=True)
class ColumnTexts:
    """The texts of a column, as far as they were seen."""

    first: dict[str, None] = field(default_factory=dict)  # distinct ones, in order
    misfits: dict[pa.DataType, tuple[str, "Csv"]] = field(default_factory=dict)  # the first text, and its file

    def add(self, values: pa.Array, file: "Csv") -> None:
        """See more texts, of one file."""
        import polars as pl

        texts = pl.Series(values, dtype=pl.String).drop_nulls().unique(maintain_order=True)
        self.first |= dict.fromkeys(texts.head(SAMPLE - len(self.first)))
        for kind in _TYPES:
            if kind not in self.misfits and (misfit := _misfit(texts, kind)) is not None:
                self.misfits[kind] = misfit, file

    @property
    def type(self) -> pa.DataType:
        """The first type that fits all texts. A leading zero makes integers `LARGE_INTEGERS`."""
        return next((kind for kind in _TYPES if kind not in self.misfits), TEXT) if self.first else NO_VALUES


def _misfit(texts: "pl.Series", kind: pa.DataType) -> str | None:
    """The first text that is no value of this type."""
    if fits(texts, kind):
        return None
    if not fits(texts[:1], kind):  # most are found here, and each look takes time
        return str(texts[0])
    return str(texts[bisect_left(range(len(texts)), True, key=lambda k: not fits(texts[: k + 1], kind))])


def converted(name: str, kind: pa.DataType) -> "pl.Expr":
    """A column of texts as this type, times still as text; polars raises `InvalidOperationError` for a misfit."""
    import polars as pl

    text = pl.col(name)
    bare = text.str.strip_chars(" ")
    if kind == pa.bool_():
        return bare.replace_strict(_BOOLEANS, return_dtype=pl.Boolean)
    if kind == INTEGERS:  # '007' and '7' may be different names
        has_zero = bare.str.starts_with("0") & (bare.str.len_bytes() > 1)
        return pl.when(has_zero).then(pl.lit("no integer")).otherwise(bare).cast(pl.Int64).alias(name)
    if kind == LARGE_INTEGERS:
        return bare.cast(pl.Int128).cast(pl.Decimal(38, 0))
    if kind == FLOATS:
        return bare.cast(pl.Float64)
    if kind == NO_VALUES:
        return (text + " is no number").cast(pl.Float64)
    return text if kind == TEXT else bare


def fits(texts: "pl.Series", kind: pa.DataType) -> bool:
    """Whether all texts are values of this type."""
    import polars as pl

    try:
        values = texts.alias("text").to_frame().select(converted("text", kind)).to_series()
        if kind in TIMES:
            values.to_arrow().cast(kind)
    except (pl.exceptions.InvalidOperationError, pa.ArrowInvalid):
        return False
    return True
