"""Spans: which slots of which column a window holds, and spans whose start is drawn."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorstash.common.checks import is_integer, shown
from tensorstash.gather.each import Variates


@dataclass(frozen=True, slots=True)
class Draw:
    """The start of a span, drawn anew for each window of each epoch.

    Each of `low`, `low + step`, and so on up to `high` is drawn equally often. In a batch of a `Loader` the slots
    before the drawn start are empty: they are filled, and `<span>.observed` is false there. Windows, `require=` and
    splits go by the longest span. Spans with equal draws start together. A draw is a hash of the seed, the epoch and
    the position in it, so it depends neither on the ranks nor on the batch size, and a resumed run draws as the whole
    run would have.

    Args:
        low: the start of the longest span, in slots from the anchor.
        high: the start of the shortest one, in slots from the anchor.
        step: slots between two starts, by default 1; it divides `high - low`.

    Raises:
        ValueError: `low` is not below `high`, or `step` does not divide the slots between them. TypeError: a number
        that is no integer.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(9.0)})
        >>> spans = {"past": ("y", ts.Draw(-5, -1, step=2), 0), "next": ("y", 0, 1)}
        >>> windows = ts.Windows(stash, spans=spans)
        >>> batch = next(iter(ts.Loader(windows, 3)))
        >>> batch["past.observed"].sum(1)
        tensor([1, 5, 5])
    """

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high), ("step", self.step)):
            if not is_integer(value):
                raise TypeError(
                    f"ts.Draw takes integers, in slots relative to the anchor, got {shown(value)} as {name}."
                )
            object.__setattr__(self, name, operator.index(value))
        if self.step < 1 or self.low >= self.high:
            raise ValueError(
                f"ts.Draw must have low < high and step >= 1, got {self}. Slots before the anchor are negative: a past "
                "of 16 to 128 slots is ts.Draw(-128, -16)."
            )
        if (self.high - self.low) % self.step:
            raise ValueError(
                f"The step of a draw must divide high - low, got {self.step} for {self.high - self.low}. Use "
                f"ts.Draw({self.high - (self.high - self.low) // self.step * self.step}, {self.high}, {self.step})."
            )

    def __len__(self) -> int:
        """How many starts there are."""
        return (self.high - self.low) // self.step + 1

    def __str__(self) -> str:
        return f"Draw({self.low}, {self.high}{f', {self.step}' if self.step != 1 else ''})"


@dataclass(frozen=True, slots=True)
class Span:
    """The slots `start, start + step, ...` before `stop` of a column, relative to a window's anchor."""

    name: str
    column: str  # with variates, their text
    start: int  # with a draw, the lowest
    stop: int
    step: int = 1
    draw: Draw | None = None
    variates: Variates | None = None  # each of their columns is a row of its own
    # if not 0, it holds distances: the window's origin minus so many times the values of the column
    distance: int = field(default=0, repr=False)

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def __str__(self) -> str:
        start = self.start if self.draw is None else self.draw
        return f"{self.name}={self.column}[{start}:{self.stop}{f':{self.step}' if self.step > 1 else ''}]"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it holds."""
        return (self.column,) if self.variates is None else self.variates.columns

    @property
    def slots(self) -> tuple[range, Draw | None]:
        """Its slots relative to the anchor; spans for which this is equal share `<span>.observed`."""
        return range(self.start, self.stop, self.step), self.draw


def draws_of(spans: Sequence[Span]) -> list[Draw]:
    """The draws of windows in the order of their numbers; spans with equal draws share one.

    Those of spans with variates come last, so that other spans, gathered without them, have the same numbers.
    """
    in_order = sorted(spans, key=lambda span: span.variates is not None)
    return [*dict.fromkeys(span.draw for span in in_order if span.draw is not None)]


def draw_number(span: Span, draws: Sequence[Draw]) -> int:
    """The number of a span's draw, -1 without one."""
    return -1 if span.draw is None else draws.index(span.draw)
