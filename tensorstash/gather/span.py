"""What a batch is gathered from: spans, which slots of which column a window holds, and the memory of a stash."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch

from tensorstash.common.checks import is_integer, shown
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native.guide import Guide
from tensorstash.segments.segment import Block

# from the numbers of slots, (n,), to the values of a column in them, (n, items of a row) integers of its width
Compute = Callable[[Int64s], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Draw:
    """The begin of a span, drawn anew for each window of each epoch: `low`, `low + step`, ... or `high`, equally often.

    In a batch of a `Loader` the slots before the drawn start are empty: they are filled, and `<span>.observed` is
    false there. Windows, `require=` and splits go by the longest span. Spans with equal draws begin together. A draw is
    a hash of the seed, the epoch and the position in it, so it depends neither on the ranks nor on the batch size, and
    a resumed run draws as the whole run would have.

    Args:
        low: the begin of the longest span, relative to the anchor.
        high: the begin of the shortest one.
        step: between two begins; it divides `high - low`.

    Example:
        >>> import numpy as np, tensorstash as ts
        >>> stash = ts.load({"y": np.arange(9.0)})
        >>> windows = ts.Windows(stash, spans={"past": ("y", ts.Draw(-5, -1, step=2), 0), "next": ("y", 0, 1)})
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
        """How many begins there are."""
        return (self.high - self.low) // self.step + 1

    def __str__(self) -> str:
        return f"Draw({self.low}, {self.high}{f', {self.step}' if self.step != 1 else ''})"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `begin, begin + step, ...` before `end` of a column, relative to a window's anchor."""

    name: str
    column: str
    begin: int  # with a draw, the lowest
    end: int
    step: int = 1
    draw: Draw | None = None

    def __len__(self) -> int:
        return len(range(self.begin, self.end, self.step))

    def __str__(self) -> str:
        begin = self.begin if self.draw is None else self.draw
        return f"{self.name}={self.column}[{begin}:{self.end}{f':{self.step}' if self.step > 1 else ''}]"

    @property
    def slots(self) -> tuple[range, Draw | None]:
        """Its slots relative to the anchor; spans for which this is equal share `<span>.observed`."""
        return range(self.begin, self.end, self.step), self.draw


def draws_of(spans: Sequence[Span]) -> list[Draw]:
    """The draws of windows in the order of their numbers; equal ones are one."""
    return [*dict.fromkeys(span.draw for span in spans if span.draw is not None)]


def draw_number(span: Span, draws: Sequence[Draw]) -> int:
    """The number of a span's draw, -1 without one."""
    return -1 if span.draw is None else draws.index(span.draw)


@dataclass(frozen=True, slots=True)
class Fragments:
    """Stretches of rows without an empty slot between them, and the slots at which they begin."""

    first: Int64s  # (fragments,) the slot of the first row of each
    row: Int64s  # (fragments,) that row
    rows: Int64s  # (fragments,)
    guide: Guide  # fragment k from its first slot up to the next fragment's, the first from slot 0


@dataclass(frozen=True, slots=True)
class Filling:
    """How windows of `history + horizon` slots, some of them empty, are mapped to rows and filled."""

    fragments: Fragments
    history: int
    horizon: int
    fills: Mapping[str, torch.Tensor]  # of the spans' columns, () integers of their width
    computed: Mapping[str, Compute]  # columns whose values in empty slots are computed


@dataclass(frozen=True, slots=True)
class Store:
    """The memory of one stash that windows are gathered from."""

    columns: Mapping[str, torch.Tensor]
    make_blocks: Callable[[], Sequence[Block]]  # of the same memory, where they are needed: a mix has many stores
    filling: Filling | None  # None: slots are rows

    @property
    def blocks(self) -> Sequence[Block]:
        """The memory of the columns side by side."""
        return self.make_blocks()


def never_empty(store: Store) -> Store:
    """The store; one of 0 rows gets a row of zeros, because row 0 is looked up for empty slots, whatever it holds."""
    if any(len(column) for column in store.columns.values()):
        return store
    columns = {name: column.new_zeros(1, *column.shape[1:]) for name, column in store.columns.items()}

    def blocks() -> list[Block]:
        widths = [math.prod(columns[block.names[0]].shape) for block in store.blocks]
        return [
            Block(block.items.new_zeros(len(block.names) * width), block.names, width)
            for block, width in zip(store.blocks, widths)
        ]

    return Store(columns, blocks, store.filling)


def by_source(source: Int32s | None) -> Iterator[tuple[int, Int64s | EllipsisType]]:
    """Each store that occurs, and the index of its windows; `None` stands for store 0 alone."""
    if source is None:
        yield 0, ...
        return
    order = np.argsort(source.astype(np.uint16), kind="stable")  # by radix; a mix has at most 2**16 components
    edges = np.flatnonzero(np.diff(source[order])) + 1
    for which in np.split(order, edges) if len(source) else ():
        yield int(source[which[0]]), which
