"""The memory that windows are gathered from, and where some of their slots have no row."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native.kernel import Fragments
from tensorstash.segments.segment import Block
from tensorstash.stash.stash import Stash

# from the numbers of slots, (n,), to the values of a column in them, (n, items of a row) integers of its width
Compute = Callable[[Int64s], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Filling:
    """How windows of `history + horizon` slots, some of them empty, are mapped to rows and filled."""

    fragments: Fragments | None  # `None`: each call brings stretches of rows
    slots: int  # how many the fragments lie in
    history: int
    horizon: int
    fills: Mapping[str, torch.Tensor]  # of the spans' columns, () integers of their width
    computed: Mapping[str, Compute]  # columns whose values in empty slots are computed


@dataclass(frozen=True, slots=True)
class Memory:
    """The columns of one stash, from which windows are gathered."""

    stash: Stash
    columns: Mapping[str, torch.Tensor]  # of it, and its times, here or on a device
    blocks: Callable[[], Sequence[Block]]  # the same columns, side by side; called late, because a mix has many stashes
    filling: Filling | None  # `None`: every slot is a row


def never_empty(memory: Memory) -> Memory:
    """The memory, with a row of zeros if it has no rows: row 0 is read for empty slots, whatever it holds."""
    if any(len(column) for column in memory.columns.values()):
        return memory
    columns = {name: column.new_zeros(1, *column.shape[1:]) for name, column in memory.columns.items()}

    def blocks() -> list[Block]:
        widths = [math.prod(columns[block.names[0]].shape) for block in memory.blocks()]
        return [
            Block(block.items.new_zeros(len(block.names) * width), block.names, width)
            for block, width in zip(memory.blocks(), widths)
        ]

    return Memory(memory.stash, columns, blocks, memory.filling)


def by_source(source: Int32s | None) -> Iterator[tuple[int, Int64s | EllipsisType]]:
    """The number of each memory that occurs, and the index of its windows; `None` stands for number 0 alone."""
    if source is None:
        yield 0, ...
        return
    narrow = source.astype(np.uint16) if source.max(initial=0) < 1 << 16 else source  # by radix
    order = np.argsort(narrow, kind="stable")
    edges = np.flatnonzero(np.diff(source[order])) + 1
    for which in np.split(order, edges) if len(source) else ():
        yield int(source[which[0]]), which
