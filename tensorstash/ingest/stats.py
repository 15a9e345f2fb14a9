"""Statistics that are collected while values are decoded."""

from dataclasses import dataclass

from tensorstash.columns.column import Number


@dataclass(slots=True)
class Stats:
    """Counts that are made while decoding, so that the data need not be read again for them."""

    nulls: int = 0  # nulls in the source
    missing: int = 0  # missing values in the stash: NaN, or code -1
    unknown: int | None = None  # values that are not in the given vocabulary; `None` without one
    low: Number | None = None
    high: Number | None = None

    def add(self, other: "Stats") -> None:
        """Add the counts of other rows."""
        self.nulls += other.nulls
        self.missing += other.missing
        if other.unknown is not None:
            self.unknown = (self.unknown or 0) + other.unknown
        lows = [x for x in (self.low, other.low) if x is not None]
        highs = [x for x in (self.high, other.high) if x is not None]
        self.low, self.high = min(lows, default=None), max(highs, default=None)
