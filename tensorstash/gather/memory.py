"""The memory that windows are gathered from, and where some of their slots have no row.

The windows of a batch may be of several components, as those of a `ts.Mix` are: component k has memory k of a plan.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import torch

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native.kernel import Fragments
from tensorstash.stash.stash import Stash

# from the numbers of slots, (n,), to the values of a column in them, (n, items of a row) integers of its width
Compute = Callable[[Int64s], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Filling:
    """How the slots of windows, some of them empty, are mapped to rows and filled."""

    fragments: Fragments | None  # `None`: each call brings stretches of rows
    slots: int  # how many the fragments lie in
    fills: Mapping[str, torch.Tensor]  # of the spans' columns, () integers of their width
    computed: Mapping[str, Compute]  # columns whose values in empty slots are computed


@dataclass(frozen=True, slots=True)
class Memory:
    """The columns of one stash, from which windows are gathered."""

    stash: Stash
    columns: Mapping[str, torch.Tensor]  # of it, and its times, here or on a device
    filling: Filling | None  # `None`: every slot is a row


def never_empty(columns: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """The columns, or a row of zeros in place of none: row 0 is read for empty slots, whatever it holds."""
    if any(map(len, columns.values())):
        return columns
    return {name: column.new_zeros(1, *column.shape[1:]) for name, column in columns.items()}


def by_component(component: Int32s | None) -> Iterator[tuple[int, Int64s | EllipsisType]]:
    """The number of each component that occurs, ascending, and the index of its windows; `None`: there is only one."""
    if component is None:
        yield 0, ...
        return
    narrow = component.astype(np.uint16) if component.max(initial=0) < 1 << 16 else component  # by radix
    order = np.argsort(narrow, kind="stable")
    edges = np.flatnonzero(np.diff(component[order])) + 1
    for which in np.split(order, edges) if len(component) else ():
        yield int(component[which[0]]), which
